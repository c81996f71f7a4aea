"""Looking ahead: trees of positions as arrays, which move to look at next, and what a position is worth."""
