"""Compiled gradient steps, and the choice of device, threads and kernels for this machine."""
