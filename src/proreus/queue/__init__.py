"""Which pod is next, and when a pod that failed is tried again.

``scheduling_queue`` is the door. A pod that waits is in exactly one of ``active`` (to be tried
next), ``backoff`` (to be tried again soon) and ``unschedulable`` (waits for a change, or gated by a
PreEnqueue plugin: ``pre_enqueue_plugins``). A pod that was popped is ``in_flight`` until it is
done; what happens meanwhile is kept, for it may help that pod. ``hints`` decides whom an event
helps, ``nominator`` knows which pods room is kept for.

All of it is sync, without I/O, and takes its time from a clock that it is given.
"""

from proreus.queue.nominator import Nominator
from proreus.queue.queueing_hints import QueueingStrategy
from proreus.queue.scheduling_queue import SchedulingQueue

__all__ = ["Nominator", "QueueingStrategy", "SchedulingQueue"]
