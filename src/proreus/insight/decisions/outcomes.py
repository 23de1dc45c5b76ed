"""Records of extenders, of Permit and of the binding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from proreus.engine.extenders.extender_chain import ExtenderAnswers

NODES_NAMED = 10
"""Of how many nodes with the same message the names are kept."""
_BYTES = 250
_BYTES_A_NAME = 60


class ExtenderRejection(Struct, frozen=True, omit_defaults=True):
    """Nodes that an extender rejected with the same message. ``names``: some of them.

    ``unresolvable``: preemption does not help there.
    """

    message: str
    count: int
    names: tuple[str, ...] = ()
    unresolvable: bool = False


class ExtenderAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer of one extender. ``verb`` is filter or prioritize; ``error`` is the reason for no
    answer.

    ``accepted``: how many nodes it let through. ``scored``: how many it gave a score.
    """

    url: str
    verb: str
    accepted: int = 0
    rejected: tuple[ExtenderRejection, ...] = ()
    scored: int = 0
    error: str = ""

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        names = sum(len(one.names) for one in self.rejected)
        texts = sum(len(one.message) for one in self.rejected) + len(self.error)
        return _BYTES * (1 + len(self.rejected)) + _BYTES_A_NAME * names + texts


class PermitWait(Struct):
    """A pod that Permit held. ``timeouts`` has the seconds of each plugin from ``since`` on.

    ``seconds``: how long it was held; None: it still is.
    """

    since: float
    timeouts: Mapping[str, float]
    seconds: float | None = None


def extender_answers(answers: ExtenderAnswers) -> tuple[ExtenderAnswer, ...]:
    """Return answers as they are kept."""
    kept = []
    for one in answers.filters:
        rejected = (
            *_rejections(one.unresolvable, unresolvable=True),
            *_rejections(
                {n: text for n, text in one.failed.items() if n not in one.unresolvable},
                unresolvable=False,
            ),
        )
        kept.append(ExtenderAnswer(one.url, "filter", one.accepted, rejected, error=one.error))
    for url, scores in answers.scores:
        error = answers.errors.get(url, "")
        kept.append(ExtenderAnswer(url, "prioritize", scored=len(scores), error=error))
    return tuple(kept)


def _rejections(messages: Mapping[str, str], *, unresolvable: bool) -> list[ExtenderRejection]:
    names: dict[str, list[str]] = defaultdict(list)
    for node, message in messages.items():
        names[message].append(node)
    return [
        ExtenderRejection(message, len(nodes), tuple(sorted(nodes)[:NODES_NAMED]), unresolvable)
        for message, nodes in names.items()
    ]
