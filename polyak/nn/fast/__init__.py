"""Policies that act through numpy, and products in half precision: the same answers at less cost."""
