"""Collecting and storing experience in tensors on a device, where environments speak tensors."""
