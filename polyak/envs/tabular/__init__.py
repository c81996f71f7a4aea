"""Finite Markov decision processes: as arrays, as environments, those of the book, and observations as numbers."""
