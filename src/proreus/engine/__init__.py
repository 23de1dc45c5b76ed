"""The steps from a popped pod to a binding."""
