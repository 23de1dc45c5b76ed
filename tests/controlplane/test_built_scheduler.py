"""What kube-scheduler's programs say of themselves, and what proreus says as the same version.

Feature gates, flags, metrics and the default configuration, of each version whose kube-scheduler is
built; of metrics the oracle tells, for /metrics has only those that were observed. What they answer
to questions is compared elsewhere (tests/conformance).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from envtest.binaries import RELEASES, Release

from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import KubernetesVersion
from proreus.base.metrics import SchedulerMetrics
from proreus.process.cli.run_flags import FLAGS

_GATE = re.compile(r"\bkube:(\w+)=true\|false \((ALPHA|BETA) - default=(\w+)\)")
_GATE_LATER = re.compile(r"or (\w+)=true\|false \(.*default=true\) if --min-comp.*>=([\d.]+)")
_FLAG = re.compile(r"(?m)^ {2,6}(?:-(\w), )?--([a-z0-9-]+)(?:\[?[ =][^ ]+)? {2,}")
_DEFAULT = re.compile(r"\(default (.*?)\)\s*$")
_REFUSED = re.compile(
    r"unrecognized feature gate: (\w+)"
    r"|cannot set feature gate (\w+) to \w+, feature is (locked to \w+|PreAlpha)"
)


ORACLES = Path(__file__).parents[1] / "conformance" / "oracle" / "build"

NOT_COMPARED = {"kube-api-qps", "emulated-version", "min-compatibility-version"}
"""Flags with a default of ours on purpose (docs/parity.md), or without one in --help."""


@pytest.fixture(scope="module", params=RELEASES)
def minor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def program(minor: str) -> Path:
    """kube-scheduler of a version, if it is built."""
    [(_, folder, _)] = Release(minor).find(["kube-scheduler"])
    path = folder / "kube-scheduler"
    if not path.is_file():
        pytest.skip(
            f"NOT COMPARED WITH KUBE-SCHEDULER {RELEASES[minor]}: it is not built "
            f"(make test-controlplane KUBERNETES={minor})"
        )
    return path


@pytest.fixture(scope="module")
def flags_help(program: Path) -> str:
    return said(program, "--help")


def test_gates_have_its_stages_and_defaults(minor: str, flags_help: str) -> None:
    version = KubernetesVersion.parse(minor)
    theirs = {name: (stage, on == "true") for name, stage, on in _GATE.findall(flags_help)}
    theirs |= {
        name: ("BETA", f"on since {since}") for name, since in _GATE_LATER.findall(flags_help)
    }
    ours = {
        name: (one.stage, f"on since {one.on_since}" if one.on_since else one.default)
        for name, one in gates_of(version).items()
        if one.stage != "GA"
    }
    others = gates_of_other_components(version) | {"AllAlpha", "AllBeta"}
    assert {name: one for name, one in theirs.items() if name not in others} == ours
    assert set(theirs) - set(ours) <= others


@pytest.mark.parametrize("value", ["true", "false"])
def test_gates_that_it_refuses_are_refused(
    minor: str, program: Path, tmp_path: Path, value: str
) -> None:
    """It lists no gates that are GA; so it is asked to set each gate of any version."""
    version = KubernetesVersion.parse(minor)
    every = {
        name
        for other in map(KubernetesVersion.parse, RELEASES)
        for name in {*gates_of(other), *gates_of_other_components(other)}
    }
    theirs: dict[str, str] = {}
    while True:  # it names one unknown gate at a time
        settings = ",".join(f"{name}={value}" for name in sorted(every - set(theirs)))
        flags = [f"--feature-gates={settings}", f"--write-config-to={tmp_path / 'unused.yaml'}"]
        refused = reasons(said(program, *flags, *nowhere(tmp_path)))
        if not refused:
            break
        theirs |= refused
    ours = {
        name: reason
        for name in every
        for reason in reasons(own_problem(f"{name}={value}", version)).values()
    }
    without_effect = gates_of_other_components(version)  # and so never refused
    assert {name: one for name, one in theirs.items() if name not in without_effect} == ours
    unknown = {name for name in without_effect if theirs.get(name) == "unrecognized"}
    assert not unknown, "gates of other components that it does not know"


def test_flags_have_its_names_and_defaults(flags_help: str) -> None:
    theirs = dict(defaults_of_flags(flags_help))
    ours = {flag.name: flag for flag in FLAGS}
    del theirs["help"]
    assert not theirs.keys() - ours.keys()
    different = {
        name: (default, ours[name].default)
        for name, default in theirs.items()
        if name not in NOT_COMPARED and plain(default) != plain(ours[name].default)
    }
    assert not different


@pytest.mark.parametrize(
    "gates",
    ["", "GenericWorkload=true", "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"],
)
def test_default_configuration_is_its(
    minor: str, program: Path, tmp_path: Path, gates: str
) -> None:
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    flags = [f"--feature-gates={gates}", *nowhere(tmp_path)]
    said(program, f"--write-config-to={theirs}", *flags)
    own = [sys.executable, "-m", "proreus", "run", f"--emulated-version={minor}"]
    said(*own, f"--write-config-to={ours}", *flags)
    expected = configuration(theirs)
    expected["clientConnection"]["qps"] = -1  # docs/parity.md
    assert configuration(ours) == expected


def test_metrics_are_its(minor: str) -> None:
    oracle = ORACLES / f"oracle-{minor}"
    if not oracle.is_file():
        pytest.skip(
            f"METRICS NOT COMPARED WITH KUBE-SCHEDULER {RELEASES[minor]}: there is no oracle "
            f"(make oracle KUBERNETES={minor})"
        )
    described = map(json.loads, said(oracle, "-metrics").splitlines())
    theirs = {
        one["name"]: (
            one["kind"],
            one["stability"],
            tuple(one["labels"]),
            tuple(one["buckets"] or ()),
        )
        for one in described
    }
    metrics = SchedulerMetrics(version=KubernetesVersion.parse(minor), show_hidden=True)
    metrics.describe_pod_groups()
    metrics.describe_placements()
    metrics.describe_group_preemption()
    ours = {
        one.name: (
            one.kind,
            one.stability,
            one.labels,
            one.buckets,
        )
        for one in (family.description for family in metrics.families())
    }
    wanted = {name for name in theirs if name.startswith("scheduler_")} | (ours.keys() & theirs)
    assert {name: ours.get(name) for name in wanted} == {name: theirs[name] for name in wanted}


def said(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def nowhere(folder: Path) -> list[str]:
    """Return flags for a cluster that does not exist."""
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
                "current-context": "c",
            }
        )
    )
    return [f"--kubeconfig={file}"]


def configuration(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def reasons(text: str) -> dict[str, str]:
    """Return why gates were refused, by name, as an error says it."""
    return {
        unknown or name: reason or "unrecognized"
        for unknown, name, reason in _REFUSED.findall(text)
    }


def own_problem(setting: str, version: KubernetesVersion) -> str:
    try:
        FeatureGates.from_list([setting], version)
    except Exception as error:
        return str(error)
    return ""


def defaults_of_flags(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and defaults of the flags in the text of --help."""
    found = list(_FLAG.finditer(text))
    for flag, following in zip(found, [*found[1:], None], strict=True):
        help_text = text[flag.end() : following.start() if following else None]
        default = _DEFAULT.search(help_text.split("\n\n")[0])
        yield flag[2], default[1] if default else ""


def plain(default: str) -> str:
    """Return a default without quotes and brackets; "" for one that is zero."""
    bare = default.strip('"[]').replace('"', "")
    return "" if bare in ("false", "0", "0s") else bare
