"""Pieces between environments, modules and learners, for programs written for RLlib."""
