"""Nodes to avoid: kubelets reject their pods, or another scheduler over-commits them."""
