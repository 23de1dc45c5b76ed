"""What goes wrong with one object and concerns no other: told of in the log, counted, survived.

A tenant can make an object fail again and again. So a fault is logged once for each version of an
object, and of all faults of one resource no more than ``LINES`` a minute; the counters count all.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from proreus.metrics import SchedulerMetrics
from proreus.objects.meta import ApiObject, ObjectMeta, key_of

logger = logging.getLogger(__name__)

LINES = 10
"""How many lines a resource may log in each period."""
PERIOD_SECONDS = 60.0
AGAIN_SECONDS = 600.0
"""After this time a handler's failure is told of again; an object's version never changes."""
_MAX_CACHED_EVENTS = 1000
_UNREADABLE = "unreadable"


class ObjectFaults:
    """The faults of the objects of one resource."""

    def __init__(
        self,
        plural: str,
        metrics: SchedulerMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plural = plural
        self._metrics = metrics
        self._now = now
        self._told: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._period_began = -PERIOD_SECONDS
        self._lines = self._unsaid = 0

    def unreadable(self, kind: str, metadata: ObjectMeta, error: Exception) -> None:
        """An object was left out, since it cannot be decoded."""
        if self._metrics is not None:
            self._metrics.objects_unreadable_total.labels(self._plural).inc()
        name = "/".join(filter(None, (metadata.namespace, metadata.name))) or "(no name)"
        version = metadata.resource_version
        if self._is_news(_UNREADABLE, name, metadata.uid, version):
            logger.error(
                "%s %s cannot be read and is left out: %s (resourceVersion %s)%s",
                *(kind, name, error, version or "unknown", self._unsaid_before()),
            )

    def handler_failed(self, handler: object, obj: ApiObject, error: Exception) -> None:
        """A handler raised when it was told of an object."""
        if self._metrics is not None:
            self._metrics.informer_handler_failures_total.labels(self._plural).inc()
        # by the place: one bug is one traceback, whatever number of objects meet it
        place = _place(error)
        if self._is_news("handler", type(handler).__name__, type(error).__name__, place):
            logger.error(
                "%s of %s failed for %s and goes on with the others%s",
                *(type(handler).__qualname__, self._plural, key_of(obj), self._unsaid_before()),
                exc_info=error,
            )

    def _is_news(self, *fault: str) -> bool:
        """Tell whether a fault is to be logged: it is new, and there was not too much lately."""
        now = self._now()
        if fault in self._told:
            self._told.move_to_end(fault)
            if fault[0] == _UNREADABLE or now - self._told[fault] < AGAIN_SECONDS:
                return False
        if now - self._period_began >= PERIOD_SECONDS:
            self._period_began, self._lines = now, 0
        if self._lines == LINES:
            self._unsaid += 1
            return False
        self._lines += 1
        self._told[fault] = now
        if len(self._told) > _MAX_CACHED_EVENTS:
            self._told.popitem(last=False)
        return True

    def _unsaid_before(self) -> str:
        unsaid, self._unsaid = self._unsaid, 0
        return f" ({unsaid} more such faults were not logged)" if unsaid else ""


def _place(error: Exception) -> str:
    """Return where an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
