from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from proreus.workbench.bench.simulation import Scale, simulate
from proreus.workbench.cli.bench import command


@pytest.mark.parametrize("alike", [True, False])
def test_every_pod_is_placed_and_counted(alike: bool) -> None:
    outcome = simulate(Scale(nodes=20, pods=60, placed=10, alike=alike))
    assert outcome.pods_per_second > 0
    assert outcome.peak_bytes > 20 * 2**20
    assert 0 <= outcome.cpu_spread < 0.02


def test_pods_that_fit_nowhere_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="20 of 130 pods found no node"):
        simulate(Scale(nodes=1, pods=130))


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    arguments = ["--simulate", "--nodes", "10", "--nodes", "20", "--pods", "30"]
    result = CliRunner().invoke(command, [*arguments, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert [one["nodes"] for one in json.loads(path.read_text())] == [10, 20]
    assert "alike" in result.output
