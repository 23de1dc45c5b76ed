"""Add-ons: plugins beyond kube-scheduler's own, for batch, AI and network-aware clusters.

One folder a plugin, named as its project names it. They belong to no default profile. The scheduler
finds them by entry points in pyproject.toml, as it finds plugins of other packages, but imports one
only once a configuration names it (``engine.runtime.registry``): without them it pays nothing. They
use the public plugin API, as any other plugin, and what custom resources they read is watched only
while they are enabled. docs/addons/ has a page each.
"""
