"""Learners that programs written for RLlib subclass."""
