"""Writes to claims and pods: allocations, reservations, deallocations."""
