"""The scheduler cache: nodes and the pods on them, assumed ones included, and their columns."""
