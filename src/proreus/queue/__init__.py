"""Which pod is next: a state machine without I/O."""
