"""Backends that run a policy's graph while it acts: eagerly in torch, compiled, or by numpy in preallocated arrays."""
