"""Hostile objects of every kind that is watched, on a real apiserver, next to plain pods.

``valid_objects`` makes small ones that an apiserver stores, ``large_objects`` the largest ones,
``load`` creates and deletes them, ``probes`` creates plain pods meanwhile, and ``run`` is the run.
"""
