"""Finds pods that would have a better node, and evicts them if configured.

    snapshot ─► better_nodes: the engine's own simulation ─► advice
                     choose: budgets, cooldown ─► evictions: recorded first ─► Eviction API

``rebalancer`` runs this in cycles. The record is a ConfigMap: whoever leads next knows what was
planned and what was done, whenever this process ends.
"""
