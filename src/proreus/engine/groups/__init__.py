"""Scheduling of whole pod groups (KEP-4671, gate GenericWorkload).

module                          what it does
------------------------------  ------------------------------------------------------------
``cycle``                       one attempt of a popped root group, from validation to submission
``algorithm``                   the dry run: a node for each pod, pods and child groups in order
``results``                     what the dry run found, and what each pod fails with
``status``                      the condition of PodGroups

As Kubernetes 1.37 does it; ``v1_36`` is the predecessor.
"""
