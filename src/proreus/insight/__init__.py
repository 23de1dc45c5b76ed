"""Answers users' questions about decisions: record, explanations, dry runs, dashboard,
snapshots.
"""
