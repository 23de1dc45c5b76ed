"""Every write: its precondition, the read that verifies it, and how many are in flight."""
