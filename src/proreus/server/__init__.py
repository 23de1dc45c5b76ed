"""HTTPS endpoints: health, metrics, configuration, z-pages; who sees them is the cluster's call.

``Server`` is the room; ``EndpointSources`` is what it shows and ``ServingOptions`` how;
``ApiAccess`` is the Protocol by which it asks the apiserver. The scheduler is not imported here:
``app`` hands in callables. Nothing is re-exported, so that the flags (``server.options``) cost no
aiohttp.
"""
