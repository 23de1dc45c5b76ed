"""``proreus crds --missing`` on an embedded apiserver: a definition that is there is left alone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml

from proreus.process.cli.crds import definition_files
from proreus.workbench.sandbox import Sandbox


async def run(kubeconfig: Path, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus", "crds", "--kubeconfig", str(kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_prints_the_definitions_that_the_cluster_lacks(tmp_path: Path) -> None:
    files = definition_files()
    async with Sandbox(nodes=0, kubelet=None) as sandbox:
        kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        definition = yaml.safe_load(files["podgroup"].read_text())
        sandbox.store.create("customresourcedefinitions.apiextensions.k8s.io", definition)

        code, out, err = await run(kubeconfig, "--missing")
        assert code == 0, err
        printed = [document["metadata"]["name"] for document in yaml.safe_load_all(out)]
        assert len(printed) == len(files) - 1
        assert "podgroups.scheduling.x-k8s.io" not in printed
        assert err == "podgroups.scheduling.x-k8s.io is there, and is left alone\n"

        code, out, err = await run(kubeconfig, "--missing", "podgroup", "elasticquota")
        [printed] = yaml.safe_load_all(out)
        assert printed["metadata"]["name"] == "elasticquotas.scheduling.x-k8s.io"

        code, out, err = await run(kubeconfig, "--missing", "podgroup")
        assert (code, out) == (0, "")


async def test_says_why_it_cannot_ask_the_cluster(tmp_path: Path) -> None:
    code, out, err = await run(tmp_path / "absent", "--missing")
    assert (code, out) == (1, "")
    assert "absent" in err
