"""The Lease (leaderelection.go)."""
