"""The devices that nodes reach by their slices, and the use of these devices."""
