"""Devices that nodes reach, by what the slices say, and those of them that are in use."""
