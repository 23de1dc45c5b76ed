"""The network: list and watch, writes, credentials, the Lease, Events.

From the bottom up: ``credentials`` has the apiserver's address and our identity, ``session`` does
HTTP, ``reflector`` lists and watches a resource over it (a ``list_watch``), ``informer`` stores the
objects and notifies handlers, ``dispatcher`` writes. Only ``reflector``, ``dispatcher``,
``event_recorder`` and ``leader_election`` retry; elsewhere errors propagate to the caller.
"""
