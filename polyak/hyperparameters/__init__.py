"""Hyper-parameters: declared once as fields of an algorithm, checked, documented, and changed on a built model."""
