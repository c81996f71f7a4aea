"""Layers and features extractors."""
