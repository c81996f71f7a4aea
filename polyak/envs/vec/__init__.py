"""Vectors of environments: the interface, in this process, in other processes."""
