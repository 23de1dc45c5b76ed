"""The scheduling queue: chooses the next pod, and when a pod that failed is tried again.

``scheduling_queue`` is the interface. A pod that waits is in exactly one of ``active`` (tried
next), ``backoff`` (tried again soon) and ``unschedulable`` (waits for an event, or is gated by a
PreEnqueue plugin); ``sub_queues`` moves it between them. A popped pod is ``in_flight`` until its
attempt is done; the events that occur meanwhile are kept, since they may help it.
``queueing_hints`` decides which pods an event helps, ``nominator`` holds the nominated pods.

All of it is sync and without I/O; the clock is an argument.
"""

from proreus.engine.queue.nominator import Nominator
from proreus.engine.queue.queueing_hints import QueueingStrategy
from proreus.engine.queue.scheduling_queue import SchedulingQueue

__all__ = ["Nominator", "QueueingStrategy", "SchedulingQueue"]
