"""Evictions by the controller: recorded in the cluster before they are made, within budgets.

``pod_evictor`` carries out the plan in ``eviction_record``, ``budgets`` limits it, and
``safe_to_evict`` finds pods that stay. All components that evict share one ``PodEvictor``, its
record and its budgets.
"""
