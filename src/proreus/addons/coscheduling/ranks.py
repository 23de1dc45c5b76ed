"""The number of a pod in its group, as the controllers of jobs label it."""

from __future__ import annotations

from proreus.objects import Pod

_INDEXES = (
    ("leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"),
    ("jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"),
    ("jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index"),
    ("batch.kubernetes.io/job-completion-index",),
    ("apps.kubernetes.io/pod-index",),
)
"""Labels or annotations that number pods, the coarser number first."""


def rank_of(pod: Pod) -> tuple[int, ...]:
    """Return a pod's number in its group, () if it has none."""
    meta = pod.metadata
    for names in _INDEXES:
        texts = [meta.labels.get(name) or meta.annotations.get(name, "") for name in names]
        if all(text.isascii() and text.isdecimal() for text in texts):
            return tuple(map(int, texts))
    return ()
