"""Child processes with one task each."""
