"""What plugins return to be compared: sort keys, and signatures.

Values of Python's own types are compared as they are. Others have methods of the plugin's, which
run inside of heaps and dictionaries: what they raise is recorded as the plugin's failure, and where
they block the event loop they are interrupted (``running_call``).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from proreus.bounded_cache import approximate_size
from proreus.framework.plugin_health import PluginHealth
from proreus.framework.pod_info import QueuedPodInfo
from proreus.runtime.calls import failure_reason

Compare = Callable[[Any, Any], Any]

_PLAIN_TYPES = frozenset({str, int, float, bool, bytes, type(None)})


def is_plain(value: object) -> bool:
    """Return whether no code of the plugin's compares a value, or makes its hash."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return type(value) in _PLAIN_TYPES


class Comparisons:
    """Comparisons of what a plugin has returned, whose methods may raise, or block.

    They are called from inside of heaps and dictionaries, which an exception would leave in
    disorder, and where nobody could tell whose it is: it is recorded here.
    """

    def __init__(self, health: PluginHealth, point: str, less: Compare, equal: Compare) -> None:
        """``less``, ``equal``: operators that may be interrupted where they block."""
        self._health = health
        self._point = point
        self._less = less
        self._equal = equal

    def less(self, one: Any, other: Any) -> bool | None:
        """Return whether one is less than the other; None: that cannot be told."""
        return self._result(operator.lt, self._less, one, other)

    def equal(self, one: Any, other: Any) -> bool | None:
        """Return whether both are equal; None: that cannot be told."""
        return self._result(operator.eq, self._equal, one, other)

    def size_bytes(self, value: Any) -> int:
        """Return about how many bytes a value takes, as far as that can be told."""
        try:
            return approximate_size(value)
        except BaseException as error:
            self._note(error)
            return sys.getsizeof(value, 0)

    def _result(self, plain: Compare, own: Compare, one: Any, other: Any) -> bool | None:
        try:
            # Values in values may be too many levels for Python.
            return bool((plain if is_plain(one) else own)(one, other))
        except BaseException as error:
            self._note(error)
            return None

    def _note(self, error: BaseException) -> None:
        self._health.note(self._point, failure_reason(error), error)


class SortKey:
    """A sort key that may be missing or not comparable; priority and age replace it then."""

    __slots__ = ("_comparisons", "_fallback", "_missing", "_own")

    def __init__(
        self,
        own: Any,
        queued: QueuedPodInfo,
        comparisons: Comparisons,
        missing: bool = False,
    ) -> None:
        self._own = own
        self._missing = missing
        self._fallback = (-queued.info.priority, queued.timestamp)
        self._comparisons = comparisons

    def __lt__(self, other: SortKey) -> bool:
        less = None
        if not (self._missing or other._missing):
            less = self._comparisons.less(self._own, other._own)
        return self._fallback < other._fallback if less is None else less

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SortKey) or self._missing or other._missing:
            return False
        return bool(self._comparisons.equal(self._own, other._own))

    __hash__ = None  # type: ignore[assignment]


class Signature:
    """A signature that is unlike all others where its own methods fail."""

    __slots__ = ("_comparisons", "_hash", "_own")

    def __init__(self, own: Any, own_hash: int, comparisons: Comparisons) -> None:
        self._own = own
        self._hash = own_hash
        self._comparisons = comparisons

    @property
    def size_bytes(self) -> int:
        """About how many bytes it takes, see ``bounded_cache.approximate_size``."""
        return sys.getsizeof(self) + self._comparisons.size_bytes(self._own)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and bool(self._comparisons.equal(self._own, other._own))
