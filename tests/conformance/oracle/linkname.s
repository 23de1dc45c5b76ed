// Empty: it lets script.go declare a function without a body, which go:linkname fills in.
