"""Kubernetes API objects as typed Structs, and the arithmetic and matching rules that come with them."""
