"""The real scheduler without a cluster: an API in memory, and a clock that only moves on request.

``proreus evaluate``, the testing kit, simulations and tests use it.
"""
