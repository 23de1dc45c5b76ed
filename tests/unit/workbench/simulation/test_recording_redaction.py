"""A redacted recording says nothing about names, and its replay is the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clusters import ZONE, node, pod, settings

from proreus.base.errors import ConfigError
from proreus.workbench.cli.snapshot import command
from proreus.workbench.simulation.recording_redaction import redact_recording
from proreus.workbench.simulation.replay import Recording, ReplayResult, replay

SECRETS = ("shop", "checkout", "n-secret", "gold", "tier", "team")


def recording(folder: Path) -> Path:
    def added(t: float, obj: Any, type_: str = "ADDED") -> Any:
        return {"t": t, "type": type_, "object": obj}

    labelled = node("n-secret-1", cpu="2", zone="zone-a")
    labelled["metadata"]["labels"]["team/tier"] = "gold"
    selecting = pod("checkout-2", nodeSelector={"team/tier": "gold"})
    changed = pod("checkout-1", on="n-secret-1")
    changed["metadata"]["labels"]["tier"] = "gold"
    # One whose name no object has: it was there before the process that recorded.
    lines = [
        {"recording": 1, "kubernetesVersion": "1.37"},
        added(0, labelled),
        added(0, node("n-secret-0", cpu="1", zone="zone-b")),
        added(5, pod("checkout-1")),
        {"t": 5.5, "type": "BOUND", "kind": "Pod", "key": "shop/checkout-1", "node": "n-secret-1"},
        added(6, changed, "MODIFIED"),
        added(7, selecting),
        added(8, pod("checkout-3", "2")),
        {"t": 30, "type": "DELETED", "kind": "Pod", "key": "shop/checkout-1"},
        {"t": 31, "type": "DELETED", "kind": "Pod", "key": "shop/checkout-0"},
    ]
    path = folder / "recording.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in lines).encode()))
    return path


def replayed(path: Path) -> ReplayResult:
    return replay(Recording(path), settings())[0]


def test_no_name_is_left_and_the_replay_is_the_same(tmp_path: Path) -> None:
    path, redacted = recording(tmp_path), tmp_path / "redacted.jsonl.gz"
    assert redact_recording(path, redacted) == 9
    text = gzip.decompress(redacted.read_bytes()).decode()
    assert not [secret for secret in SECRETS if secret in text]
    assert ZONE in text
    before, after = replayed(path), replayed(redacted)
    for name in ("arrivals", "scheduled", "departures", "same_node", "recorded", "replayed"):
        assert getattr(before, name) == getattr(after, name), name
    assert before.samples == after.samples
    assert len(before.result.placed) == len(after.result.placed) == 1
    assert before.same_node == 1

    # Names sort as before, and equal ones stay equal.
    def events(of: Path) -> list[Any]:
        return [json.loads(line) for line in gzip.decompress(of.read_bytes()).splitlines()]

    bound = [one for one in events(redacted)[1:] if one.get("type") == "BOUND"]
    added = [one["object"] for one in events(redacted)[1:] if one.get("type") == "ADDED"]
    names = {one["metadata"]["name"] for one in added}
    assert bound[0]["node"] in names
    assert bound[0]["key"].split("/")[1] in names


def test_labels_that_are_kept(tmp_path: Path) -> None:
    path, redacted = recording(tmp_path), tmp_path / "redacted.jsonl.gz"
    redact_recording(path, redacted, ["team/tier"])
    text = gzip.decompress(redacted.read_bytes()).decode()
    assert '"team/tier":"gold"' in text
    assert "checkout" not in text


def test_the_command(tmp_path: Path) -> None:
    path, redacted = recording(tmp_path), tmp_path / "redacted.jsonl.gz"
    runner = CliRunner()
    done = runner.invoke(command, ["--recording", str(path), "--redact", "--output", str(redacted)])
    assert done.exit_code == 0, done.output
    assert replayed(redacted).arrivals == replayed(path).arrivals
    for wrong in (["--output", str(redacted)], ["--redact"], ["--redact", "--output", str(path)]):
        done = runner.invoke(command, ["--recording", str(path), *wrong])
        assert done.exit_code == 2, done.output


def test_redaction_refuses_unreadable_and_unwritable_files(tmp_path: Path) -> None:
    path = recording(tmp_path)
    with pytest.raises(ConfigError, match="cannot write"):
        redact_recording(path, tmp_path / "nowhere" / "out")
    other = tmp_path / "other"
    other.write_text("{}\n")
    with pytest.raises(ConfigError, match="not a recording"):
        redact_recording(other, tmp_path / "out")
