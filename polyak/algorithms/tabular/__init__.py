"""Tables of action values, planned from a known model or learned from experience."""
