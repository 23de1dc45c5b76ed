"""Computes the resources of each node for offline pods from real use, and evicts such pods.

    metrics.k8s.io ─► measurements ─► batch_resources: what online pods leave ─► status of nodes
                                   └► pressure: nodes where more is used ─► evictions

``colocation_controller`` runs this in cycles. The add-on Colocation of the scheduler reads what is
written.
"""
