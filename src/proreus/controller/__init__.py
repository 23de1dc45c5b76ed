"""``proreus controller`` does slow work outside the scheduler: statuses and rebalancing.

A process of its own. It reads all its state from the apiserver, so that it may be killed at any
time and begin again. ``run`` is the order of start and end. kopf (``operator``) watches the custom
resources, our own informer the pods; ``status_writer`` writes what the ``*_status`` modules compute
of them. ``colocation`` measures what nodes have for offline pods, ``rebalancing`` proves better
nodes by simulation; both may evict. kopf is imported nowhere else in proreus.
"""
