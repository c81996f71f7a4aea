"""Games by search: Monte Carlo tree search, rules as arrays, self-play and its players."""
