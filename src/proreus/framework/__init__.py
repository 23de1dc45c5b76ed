"""What a plugin may see, and what it may answer."""
