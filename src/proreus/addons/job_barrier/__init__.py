"""JobBarrier: the pods of a job start together, and further ones join it as there is room."""

from proreus.addons.job_barrier.plugin import JobBarrier

__all__ = ["JobBarrier"]
