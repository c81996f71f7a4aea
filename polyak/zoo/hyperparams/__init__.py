"""Tuned settings, one YAML file per algorithm, and beside them the spaces in which `polyak tune` searches."""
