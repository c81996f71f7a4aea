"""What chooses the actions while experience is collected."""
