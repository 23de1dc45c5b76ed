"""Helm, with its files in a folder of the tests, and the chart in deploy/chart."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

CHART = Path(__file__).resolve().parents[3] / "deploy" / "chart"


class Helm:
    """One Helm without plugins, repositories and settings of the user."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def attempt(
        self,
        *arguments: str,
        values: Mapping[str, Any] | None = None,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run Helm with a file of values; whether it fails is the caller's matter."""
        command = [str(self._program), *arguments]
        if values is not None:
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            command.append(f"--values={file}")
        home = {f"HELM_{kind}_HOME": str(self._folder) for kind in ("CACHE", "CONFIG", "DATA")}
        environment = os.environ | home | {"KUBECONFIG": str(kubeconfig or "/dev/null")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)

    def run(
        self,
        *arguments: str,
        values: Mapping[str, Any] | None = None,
        kubeconfig: Path | None = None,
    ) -> str:
        """Run Helm and return its output, which is part of a failure."""
        result = self.attempt(*arguments, values=values, kubeconfig=kubeconfig)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def template(self, values: Mapping[str, Any], namespace: str = "proreus") -> list[Json]:
        """Return the objects that the chart renders, without a cluster."""
        text = self.run(
            *("template", "proreus", str(CHART), f"--namespace={namespace}"), values=values
        )
        return [document for document in yaml.safe_load_all(text) if document]
