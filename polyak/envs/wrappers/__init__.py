"""Wrappers of environments and of vectorised environments."""
