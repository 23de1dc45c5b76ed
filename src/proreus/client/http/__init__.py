"""HTTP to the apiserver: a session, its connections, how they are opened."""
