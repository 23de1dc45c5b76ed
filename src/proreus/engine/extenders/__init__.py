"""HTTP extenders (extender.go)."""
