"""Errors that concern a single object: logged, counted, and of no effect on other objects.

A tenant can create objects that fail again and again. So an error is logged once for each version
of an object, and no more than ``LINES`` errors of one resource a minute; the counters count all.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from proreus.base.metrics import SchedulerMetrics
from proreus.base.repeated_failures import LineLimit
from proreus.objects.meta import ApiObject, ObjectMeta, key_of

logger = logging.getLogger(__name__)

LINES = 10
"""The most log lines for one resource in each period."""
PERIOD_SECONDS = 60.0
AGAIN_SECONDS = 600.0
"""After this time a failure of a handler is logged again; an undecodable version is not."""
_MAX_LOGGED = 1000
_UNREADABLE = "unreadable"


class ObjectFaults:
    """The errors about objects of one resource."""

    def __init__(
        self,
        plural: str,
        metrics: SchedulerMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plural = plural
        self._metrics = metrics
        self._now = now
        self._logged_at: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._limit = LineLimit(LINES, PERIOD_SECONDS, now)

    def unreadable(self, kind: str, metadata: ObjectMeta, error: Exception) -> None:
        """Record an object that was left out because it cannot be decoded."""
        if self._metrics is not None:
            self._metrics.objects_unreadable_total.labels(self._plural).inc()
        name = "/".join(filter(None, (metadata.namespace, metadata.name))) or "(no name)"
        version = metadata.resource_version
        if self._should_log(_UNREADABLE, name, metadata.uid, version):
            logger.error(
                "%s %s cannot be read and is left out: %s (resourceVersion %s)%s",
                *(kind, name, error, version or "unknown", self._suppressed_note()),
            )

    def handler_failed(self, handler: object, obj: ApiObject, error: Exception) -> None:
        """Record an exception of an event handler."""
        if self._metrics is not None:
            self._metrics.informer_handler_failures_total.labels(self._plural).inc()
        # Keyed by source line: one bug is one traceback, however many objects trigger it.
        place = _place(error)
        if self._should_log("handler", type(handler).__name__, type(error).__name__, place):
            logger.error(
                "%s of %s failed for %s and continues with the others%s",
                *(type(handler).__qualname__, self._plural, key_of(obj), self._suppressed_note()),
                exc_info=error,
            )

    def _should_log(self, *fault: str) -> bool:
        """Return whether to log an error: it is new, and the limit of lines is not reached."""
        now = self._now()
        if fault in self._logged_at:
            self._logged_at.move_to_end(fault)
            if fault[0] == _UNREADABLE or now - self._logged_at[fault] < AGAIN_SECONDS:
                return False
        # Not marked as logged: it may be logged in the next period.
        if not self._limit.allows():
            return False
        self._logged_at[fault] = now
        if len(self._logged_at) > _MAX_LOGGED:
            self._logged_at.popitem(last=False)
        return True

    def _suppressed_note(self) -> str:
        count = self._limit.take_suppressed()
        return f" ({count} more such faults were not logged)" if count else ""


def _place(error: Exception) -> str:
    """Return file and line where an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
