"""What a start of ``proreus run`` does not need, it does not do."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.base.source_location import class_location
from proreus.process.loading.load import PluginSources, load

_NOT_OF_A_RUN = (
    "aiohttp",
    "click",
    "cryptography",
    "hypothesis",
    "jinja2",
    "kopf",
    "kubernetes",
    "matplotlib",
    "prometheus_client",
    "rich",
    "proreus.workbench.bench",
    "proreus.controller",
    "proreus.insight.dashboard",
    "proreus.remote",
    "proreus.workbench.sandbox",
    "proreus.workbench.simulation",
    "proreus.testing",
)
"""What other commands, options or plugins need, or the server, which starts later."""


def test_a_plain_run_does_not_import_what_it_has_no_use_for():
    code = f"""
import sys, proreus.process.cli.run
print(*[name for name in {_NOT_OF_A_RUN!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self")
@pytest.mark.parametrize("chosen", ["", "2"])
def test_numpy_has_one_thread_and_no_large_pages_unless_told_otherwise(chosen):
    code = """
import os, sys
from proreus.process.cli import main
try:
    main(["run", "--version"])
except SystemExit:
    pass
print(os.environ["OPENBLAS_NUM_THREADS"], len(os.listdir("/proc/self/task")))
import numpy as np
array = np.ones(2**25, dtype=np.uint8)
inside = False
for line in open("/proc/self/smaps"):
    first, _, rest = line.partition(" ")
    if "-" in first:
        start, end = (int(one, 16) for one in first.split("-"))
        inside = start <= array.ctypes.data < end
    elif inside and first == "VmFlags:":
        print("hg" in rest.split())
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "NUMPY"))}
    if chosen:
        environment["OPENBLAS_NUM_THREADS"] = chosen
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    threads = min(int(chosen or 1), os.cpu_count() or 1)
    assert done.stdout.splitlines()[1:] == [f"{chosen or 1} {threads}", "False"]


def test_in_tree_plugins_are_located_only_when_somebody_asks(monkeypatch):
    def fail(_):
        raise AssertionError("the source of a plugin was parsed")

    with monkeypatch.context() as patched:
        patched.setattr(inspect, "getsourcelines", fail)
        loaded = load(PluginSources(packages=False))
    fit = loaded.found["NodeResourcesFit"]
    assert fit.location == class_location(fit.plugin)
    assert fit.location[1] > 0


def test_outside_of_a_cluster_the_kubeconfig_library_is_not_imported_to_find_that_out():
    # A process whose kubeconfig is for nothing but scheduling looks for in-cluster credentials.
    code = """
import asyncio, sys
from proreus.client.credentials.credential_loading import NOT_CONFIGURED, load
from proreus.base.errors import ConfigError
try:
    asyncio.run(load(environ={}))
except ConfigError as error:
    print(str(error) == NOT_CONFIGURED, "kubernetes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_no_garbage_is_collected_while_modules_are_imported():
    code = """
import gc
from proreus.process.cli import main
collected = []
gc.callbacks.append(lambda phase, info: collected.append(phase))
try:
    main(["run", "--version"])
finally:
    print(len(collected))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_become_dev_null(tmp_path: Path, closed: str) -> None:
    seen = tmp_path / "seen"
    code = f"""
import os, sys
from proreus.process.cli import open_standard_descriptors
open_standard_descriptors()
with open({str(seen)!r}, "w") as file:
    print(file.fileno() > 2, file=file)
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        print(os.path.samestat(os.fstat(number), os.stat(os.devnull)), file=file)
        stream.write("x") if number else stream.read()
"""
    command = f'exec "$0" -c "$1" </dev/null {closed}'
    subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, code], check=True, capture_output=True
    )
    above, *null = seen.read_text().split()
    assert above == "True"
    expected = [True, closed != "<&-" and closed != "2>&-", "2>&-" in closed]
    assert null == [str(one) for one in expected]


@pytest.mark.parametrize("command", ["version", "run --config /not/there", "plugins --config -"])
def test_commands_end_as_usual_without_standard_descriptors(command: str) -> None:
    shell = f'exec "$0" -m proreus {command} <&- >&- 2>&-'
    done = subprocess.run(["/bin/sh", "-c", shell, sys.executable], check=False)
    assert done.returncode == (0 if command == "version" else 1)
