"""How plugins are run: profiles, extension points, shared answers."""
