"""The network: list and watch, writes, credentials, the Lease, Events.

Read it from the bottom up: ``credentials`` say where the apiserver is and who we are, ``session``
speaks HTTP, ``reflector`` keeps a kind in step over it, ``informer`` holds what came and tells the
handlers, ``dispatcher`` writes. Only ``reflector`` and ``dispatcher`` (and what elects a leader)
try again after an error; everybody else hears of it.
"""
