"""Imitation learning: adversarial training and learned rewards."""
