"""Distributed training: runners in other processes, the transports that reach them, and the data they exchange."""
