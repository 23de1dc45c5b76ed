"""How plugins are run: profiles, extension points, shared results."""
