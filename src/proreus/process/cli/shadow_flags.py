"""The flags of ``proreus run`` about a candidate that is tried in the shadow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proreus.process.cli.go_flags import Flag, FlagError, Kind, ParsedFlags

if TYPE_CHECKING:
    from proreus.process.options import ShadowOptions

_GROUP = "Proreus"


def _flag(name: str, kind: Kind, default: str, text: str) -> Flag:
    return Flag(f"shadow-{name}", kind, default, _GROUP, text)


SHADOW_FLAGS: tuple[Flag, ...] = (
    _flag(
        "config",
        "string",
        "",
        "Candidate KubeSchedulerConfiguration. It decides beside the one in force, without effect, "
        "and both are compared. Default, with --shadow-plugin-dir: the file of --config.",
    ),
    _flag(
        "plugin-dir",
        "list",
        "[]",
        "Folder with .py files of plugins that the candidate uses instead of those of "
        "--plugin-dir; may be repeated.",
    ),
    _flag("pods", "int", "1000", "Compared pods that end a trial; 0: only --shadow-duration does."),
    _flag(
        "duration",
        "duration",
        "10m0s",
        "Length of a trial from its first pod on; 0s: only --shadow-pods ends it.",
    ),
    _flag(
        "sample",
        "float",
        "0.1",
        "Share of the pods that are compared, at most 1. A trial never takes more than a tenth of "
        "the time.",
    ),
    _flag(
        "on-success",
        "string",
        "report",
        "Effect of a passed trial: report it, or adopt the candidate, which comes into force.",
    ),
    _flag(
        "max-differences",
        "float",
        "0",
        "Largest share of different decisions with which a candidate passes.",
    ),
)
"""Rows for ``run_flags.FLAGS``."""


def shadow_options(values: ParsedFlags) -> ShadowOptions | None:
    """Return the candidate that the flags name, or None; raises ``FlagError``."""
    from proreus.process.options import ShadowOptions

    if problems := list(_problems(values)):
        raise FlagError("; ".join(problems))
    if not _has_candidate(values):
        return None
    return ShadowOptions(
        config=values["shadow-config"],
        plugin_folders=values["shadow-plugin-dir"],
        pods=values["shadow-pods"],
        duration_seconds=values["shadow-duration"],
        sample=values["shadow-sample"],
        adopt=values["shadow-on-success"] == "adopt",
        max_differences=values["shadow-max-differences"],
    )


def _has_candidate(values: ParsedFlags) -> bool:
    return bool(values["shadow-config"] or values["shadow-plugin-dir"])


def _problems(values: ParsedFlags) -> Iterator[str]:
    names = [flag.name for flag in SHADOW_FLAGS]
    if not _has_candidate(values) and (given := values.explicit.intersection(names)):
        yield f"--{min(given)}: needs --shadow-config or --shadow-plugin-dir"
    for name in ("shadow-pods", "shadow-duration"):
        if values[name] < 0:
            yield f"--{name}: must be zero or greater"
    if not (values["shadow-pods"] or values["shadow-duration"]):
        yield "--shadow-pods, --shadow-duration: one of them must be greater than zero"
    if not 0 < values["shadow-sample"] <= 1:
        yield "--shadow-sample: must be greater than zero and at most 1"
    if not 0 <= values["shadow-max-differences"] <= 1:
        yield "--shadow-max-differences: must be between zero and 1"
    if (chosen := values["shadow-on-success"]) not in ("report", "adopt"):
        yield f'--shadow-on-success: "{chosen}" is not supported, allowed are report and adopt'
