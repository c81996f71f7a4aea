"""Figures of the book, each by one command: Sutton and Barto 2018, "Reinforcement Learning: An Introduction"."""
