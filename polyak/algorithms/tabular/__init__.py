"""Tabular action values, planned with a known model or learned from experience."""
