"""Tables of action values: planned from a known model, or learned while acting."""
