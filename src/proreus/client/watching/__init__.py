"""List and watch: reflectors, and the informers that store the objects (client-go)."""
