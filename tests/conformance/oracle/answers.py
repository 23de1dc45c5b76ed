"""Both answers to a case, and whether they differ other than by chance."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from conformance import compare
from conformance.oracle.of_version import of_version
from proreus.base.errors import ProreusError
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.engine.runtime.registry import Registry
from proreus.offline.evaluate import evaluate
from proreus.plugins import IN_TREE_PLUGINS

JsonObject = dict[str, Any]

_SECONDS, _SECONDS_A_CASE = 30, 3
_AGAIN = 12
"""How often kube-scheduler is asked again where answers differ."""

_NOT_ASKED = ("objects[", "pod:")
"""Prefixes of errors for questions that Go cannot decode, which have no answer."""

_REFUSED_HERE = "whose data it reads: every pod would fail"
"""Of a configuration that kube-scheduler accepts, and proreus does not (docs/parity.md)."""

_UNPARSED = re.compile(
    r'(parsing pod: \w+|CEL compile error: |running PreScore plugin \\+"NodeAffinity\\+": )'
    r'(?:[^"\\]|\\.)*'
)


class Oracle(NamedTuple):
    """kube-scheduler of a version, as a program that answers."""

    program: Path
    version: KubernetesVersion

    @classmethod
    def parse(cls, path: str) -> Self:
        """Return the oracle of a path that ends in its version: ``oracle-1.38``."""
        return cls(Path(path), KubernetesVersion.parse(path.rpartition("-")[2]))

    @property
    def name(self) -> str:
        """What differences call it."""
        return f"kube-scheduler {self.version}"

    def answers(
        self, cases: Sequence[JsonObject], *, as_they_are: bool = False
    ) -> dict[str, JsonObject]:
        """Return its answers by id; the cases are put into the words of its version."""
        asked = cases if as_they_are else [of_version(case, self.version) for case in cases]
        return ask(self.program, asked)

    def left_to_chance(self, case: JsonObject, want: JsonObject, got: JsonObject) -> bool:
        """Ask again; return whether its answers vary, or agree with the other one."""
        copies = [{**case, "id": f"{case['id']}-{n}"} for n in range(_AGAIN)]
        answers = self.answers(copies).values()
        return any(differences(want, one) or not differences(one, got) for one in answers)


class Proreus(NamedTuple):
    """proreus as a version."""

    version: KubernetesVersion

    @property
    def name(self) -> str:
        """What differences call it."""
        return "proreus"

    def answers(self, cases: Sequence[JsonObject]) -> dict[str, JsonObject]:
        """Return its answers by id."""
        return {case["id"]: own(of_version(case, self.version)) for case in cases}

    def left_to_chance(self, *_: JsonObject) -> bool:
        """Return False: it answers alike each time."""
        return False


def ask(oracle: Path, cases: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Return kube-scheduler's answers by id.

    Some questions make kube-scheduler itself crash, and the oracle with it, or never end: the rest
    is asked again in halves.
    """
    text = "".join(json.dumps(case) + "\n" for case in cases)
    patience = _SECONDS + _SECONDS_A_CASE * len(cases)
    try:
        done = subprocess.run(
            [oracle.resolve()], input=text, capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        fault = "no answer"
    else:
        if done.returncode == 0:
            lines = map(json.loads, done.stdout.splitlines())
            return {line["id"]: line["expect"] for line in lines}
        fault = done.stderr[:500]
    if len(cases) == 1:
        return {cases[0]["id"]: {"error": f"crash: {fault}"}}
    half = len(cases) // 2
    return ask(oracle, cases[:half]) | ask(oracle, cases[half:])


def own(case: JsonObject) -> JsonObject:
    """Return proreus's answer; ``raised`` in it: an exception that is none of its own errors."""
    try:
        (answer,) = evaluate([case], Registry(IN_TREE_PLUGINS))
    except ProreusError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "raised": True}
    expect: JsonObject = json.loads(json.dumps(answer["expect"]))
    return expect


def differences(want: JsonObject, got: JsonObject) -> JsonObject:
    """Return the aspects in which answers differ, apart from the texts of internal errors."""
    if _REFUSED_HERE in got.get("configError", ""):
        return {}
    fault = want.get("error", "")
    unanswerable = fault.startswith((*_NOT_ASKED, "crash", "panic"))
    if got.get("raised") and not unanswerable:
        return {"error": (fault, got)}
    if fault:
        equal = unanswerable or got.get("error")
        return {} if equal else {"error": (fault, got)}
    if got.get("error") and any(v["code"] == "Error" for v in want.get("filter", {}).values()):
        return {}
    found: JsonObject = compare.differences(
        _without_error_texts(want), _without_error_texts(got), compare.OBSERVED
    )
    return found


def _without_error_texts(answer: JsonObject) -> JsonObject:
    """Remove the errors of invalid selectors and of preemption, whose texts differ."""
    comparable: JsonObject = json.loads(_UNPARSED.sub(r"\1", json.dumps(answer)))
    for outcome in comparable.get("preemption") or ():
        if outcome["code"] == "Error":
            outcome.pop("message", None)
    return comparable
