"""Pods that look alike share the work of plugins.

What a ``row_local`` plugin answered for one pod holds for the next pod with the same signature,
except on the rows that changed since: only those are asked again. There are two layers: ``Answers``
keep one plugin's verdicts and raw scores for one signature, a ``Face`` is what all such plugins
together said. This is where both are found again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping

from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.runtime.answers import Answers
from proreus.runtime.face import Face

_MEMORY_BUDGET_BYTES = 64 * 2**20
_BYTES_A_ROW = 24
_MOST_ENTRIES = 256


class SharedAnswers:
    """The answers of one profile, by signature; the least recently used go first."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._answers: OrderedDict[Hashable, Answers] = OrderedDict()
        self._faces: OrderedDict[Hashable, Face] = OrderedDict()

    def answers(self, plugin: Plugin, signature: Hashable) -> Answers:
        """Return a plugin's answers for a signature, up to date or not."""
        key = (plugin.name, signature)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = Answers(plugin)
            self._trim(self._answers)
        else:
            self._answers.move_to_end(key)
        return answers

    def face(self, signatures: Mapping[FilterPlugin, Hashable]) -> Face:
        """Return the face of pods to which these plugins with these signatures apply."""
        key = tuple(signatures.items())
        face = self._faces.get(key)
        if face is None:
            face = Face([self.answers(plugin, sign) for plugin, sign in signatures.items()])
            self._faces[key] = face
            self._trim(self._faces)
        else:
            self._faces.move_to_end(key)
        return face

    def clear(self) -> None:
        """Forget everything: these can be megabytes, and who holds them may be slow to go."""
        self._answers.clear()
        self._faces.clear()

    def _trim(self, entries: OrderedDict[Hashable, Answers] | OrderedDict[Hashable, Face]) -> None:
        size = max(self._table.size, 1)
        limit = max(4, min(_MOST_ENTRIES, _MEMORY_BUDGET_BYTES // (_BYTES_A_ROW * size)))
        while len(entries) > limit:
            entries.popitem(last=False)
