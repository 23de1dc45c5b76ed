"""The dry-run API as others see it: by clients that are generated from its OpenAPI document.

`make test-clients` installs the generators in build/clients.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "dry-run.openapi.json"
CLIENTS = ROOT / "tests" / "clients"
INSTALLED = ROOT / "build" / "clients"
PROGRAMS = INSTALLED / "python" / "bin"
MODULES = INSTALLED / "node_modules"

pytestmark = pytest.mark.skipif(
    not (PROGRAMS.exists() and MODULES.exists()),
    reason="GENERATED CLIENTS NOT TESTED: no generators are installed (make test-clients)",
)


async def run(*command: Any, cwd: Path, **environment: str) -> str:
    """Run a program; return its output."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(540):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


def placed(out: str) -> list[tuple[str, bool]]:
    """Return the pods that a client prints, and whether a node of the sandbox is beside each."""
    lines = [line.split(" ") for line in out.splitlines()]
    return [(pod, node.startswith("node-")) for pod, node in lines]


TWO_PODS = [("default/web-0", True), ("default/web-1", True)]


async def test_a_generated_python_client_type_checks_and_asks(dry_run_port, sandbox, tmp_path):
    generator = PROGRAMS / "openapi-python-client"
    await run(generator, "generate", "--path", DOCUMENT, "--meta", "none", cwd=tmp_path)
    script = shutil.copy(CLIENTS / "ask.py", tmp_path)
    python = PROGRAMS / "python"
    checker = sys.executable, "-m", "mypy", "--strict", "--python-executable", python
    await run(*checker, script, cwd=tmp_path)
    out = await run(
        python, script, f"https://127.0.0.1:{dry_run_port}", sandbox.token, cwd=tmp_path
    )
    assert placed(out) == TWO_PODS


async def test_a_generated_typescript_client_compiles_and_asks(dry_run_port, sandbox, tmp_path):
    (tmp_path / "node_modules").symlink_to(MODULES)
    for name in ("package.json", "tsconfig.json", "ask.ts"):
        shutil.copy(CLIENTS / name, tmp_path)
    programs = MODULES / ".bin"
    await run(programs / "openapi-typescript", DOCUMENT, "-o", "schema.d.ts", cwd=tmp_path)
    await run(programs / "tsc", cwd=tmp_path)
    # proreus makes its own certificate.
    unverified = {"NODE_TLS_REJECT_UNAUTHORIZED": "0", "NODE_NO_WARNINGS": "1"}
    asked = "ask.js", f"https://127.0.0.1:{dry_run_port}", sandbox.token
    out = await run("node", *asked, cwd=tmp_path, **unverified)
    assert placed(out) == TWO_PODS


async def test_schemathesis_finds_no_fault(dry_run_port, sandbox, tmp_path):
    for name in ("schemathesis.toml", "hooks.py"):
        shutil.copy(CLIENTS / name, tmp_path)
    await run(
        *(PROGRAMS / "schemathesis", "run", DOCUMENT, "--url", f"https://127.0.0.1:{dry_run_port}"),
        *("--header", f"Authorization: Bearer {sandbox.token}", "--tls-verify", "false"),
        *("--seed", "1", "--no-color", "--max-examples", "100"),
        cwd=tmp_path,
    )
