"""Evictions by the controller: recorded in the cluster before they are made, within budgets.

``pod_evictor`` carries out what ``eviction_record`` says, ``budgets`` how much of it is allowed,
``safe_to_evict`` which pods stay.
All who evict use one ``PodEvictor``, and so share record and budgets.
"""
