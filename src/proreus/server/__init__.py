"""HTTPS endpoints: health, metrics, configuration, z-pages, with delegated authorization.

``Server`` serves them: ``EndpointSources`` has their content, ``ServingOptions`` the flags, and
``ApiAccess`` is the Protocol of its requests to the apiserver. The scheduler is not imported here:
``app`` passes callables. Nothing is re-exported, so that importing the flags (``server.options``)
does not import aiohttp.
"""
