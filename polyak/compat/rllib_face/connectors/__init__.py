"""Pieces between environments, modules and learners, as programs written for RLlib bring them."""
