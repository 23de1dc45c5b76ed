"""What we believe about nodes and the pods on them, kept in step with columns."""
