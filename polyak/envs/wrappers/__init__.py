"""What is put around environments and around vectors of them."""
