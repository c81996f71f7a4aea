"""What models are built of."""
