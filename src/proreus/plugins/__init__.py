"""Scheduling policy, one module a plugin."""
