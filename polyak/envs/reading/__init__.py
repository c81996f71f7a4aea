"""Reading files that others made: what they claim is checked before memory is taken for it."""
