"""How Kubernetes 1.36 schedules PodGroups: one pod is popped, and fetches the others of its group.

Deleted when 1.36 is not served any more; ``pod_groups`` is the successor.
"""
