"""Training with processes elsewhere: runners that collect, what reaches them, and what travels."""
