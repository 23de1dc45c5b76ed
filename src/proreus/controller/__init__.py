"""Slow controllers of CRDs, in a process of their own."""
