"""Kubernetes API objects as typed Structs, with their arithmetic and matching rules."""
