"""Game search: Monte Carlo tree search, vectorised rules, self-play and its worker processes."""
