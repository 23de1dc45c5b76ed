"""What a start of ``proreus run`` does not need, it does not do."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.loading import PluginSources, load
from proreus.source_location import class_location

_LATER = (
    "aiohttp",
    "cel_expr_python",
    "click",
    "cryptography",
    "http",
    "hypothesis",
    "importlib.metadata",
    "jinja2",
    "kopf",
    "kubernetes",
    "prometheus_client",
    "pydantic",
    "requests",
    "rich",
    "urllib.request",
    "watchfiles",
    "proreus.bench",
    "proreus.controller",
    "proreus.dashboard",
    "proreus.plugins.dynamic_resources.allocator",
    "proreus.plugins.dynamic_resources.filtering",
    "proreus.plugins.dynamic_resources.node_allocatable",
    "proreus.remote",
    "proreus.sandbox",
    "proreus.scheduler.pod_groups.cycle",
    "proreus.scheduler.pod_groups_v1_36",
    "proreus.scheduler.shadow",
    "proreus.simulation",
    "proreus.testing",
)
"""Modules that take long to import and that not every process needs, or not at once."""


def test_modules_that_are_needed_later_or_never_are_not_imported():
    code = f"""
import sys, uvloop, proreus.cli.run, proreus.cli.early_start, proreus.app
print(*[name for name in {_LATER!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_what_plugins_import_later_is_there_for_the_first_pod_that_needs_it():
    code = """
import importlib, pkgutil, sys, proreus.cli.run, proreus.app
import proreus.plugins.dynamic_resources as package
from proreus.plugins import imported_later
imported_later.import_all()
before = set(sys.modules)
for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    # CEL is evaluated in a process of its own, which imports what that takes.
    if not module.name.split(".")[-1].startswith("cel_"):
        importlib.import_module(module.name)
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]"]


def test_few_dataclasses_are_made():
    # Each takes half a millisecond to make, a Struct fifteen microseconds. Those that are left have
    # fields that a Struct cannot have.
    code = """
import sys, proreus.cli.run, proreus.app
found = {
    value
    for name, module in sys.modules.items() if name.startswith("proreus.")
    for value in vars(module).values()
    if isinstance(value, type) and "__dataclass_fields__" in vars(value)
}
print(len({one for one in found if one.__module__.startswith("proreus.")}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 2


def test_add_ons_are_imported_only_when_a_configuration_names_them():
    code = """
import sys, proreus.cli.run, proreus.app
from proreus.config.load import default_configuration, load
from proreus.loading import PluginSources, load as load_plugins
registry = load_plugins(PluginSources(packages=False)).registry
default_configuration(registry)
print(*[name for name in sys.modules if name.startswith("proreus.addons.")])
load({
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [{"name": "PodState"}]}],
}, registry)
print(*sorted(name for name in sys.modules if name.startswith("proreus.addons.pod")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "",
        "proreus.addons.pod_state proreus.addons.pod_state.plugin",
    ]


def test_pydantic_is_imported_only_with_a_plugin_that_has_a_model():
    code = """
import sys, proreus.cli.run, proreus.app
from proreus.config.load import load
from proreus.feature_gates import FeatureGates
from proreus.config.write import to_yaml
from proreus.loading import PluginSources, load as load_plugins
from proreus.runtime.expansion import effective_configuration
registry = load_plugins(PluginSources(packages=False)).registry
def load_args(plugin, args):
    profile = {"pluginConfig": [{"name": plugin, "args": args}]}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config = load({**head, "clientConnection": {"qps": 5}, "profiles": [profile]}, registry)
    to_yaml(effective_configuration(config, registry), FeatureGates())
    return "pydantic" in sys.modules
print(load_args("InterPodAffinity", {"hardPodAffinityWeight": 3}))
print(load_args("NodeMetadata", {"metadataKey": "a"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


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
from proreus.client.credential_loading import NOT_CONFIGURED, load
from proreus.errors import ConfigError
try:
    asyncio.run(load(environ={}))
except ConfigError as error:
    print(str(error) == NOT_CONFIGURED, "kubernetes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_numpy_is_imported_without_docstrings_types_and_threads():
    code = """
import os, sys
from proreus import numpy_import
numpy_import.set_environment()
numpy_import.import_numpy()
print(len(os.listdir("/proc/self/task")))
import numpy as np
print(not np.ndarray.__doc__, np.bincount(np.array([1, 1, 2]))[1], np.linalg.det(np.eye(2)))
import proreus.app
print([name for name in sys.modules if name.startswith(("numpy._typing", "numpy.typing"))])
import numpy.typing as npt
print(npt.NDArray[np.int64], npt.ArrayLike is not None, np.linalg.svd(np.eye(2)).S)
numpy_import.import_numpy()
print("numpy._typing" in sys.modules)
"""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "1",
        "True 2 1.0",
        "[]",
        "numpy.ndarray[tuple[typing.Any, ...], numpy.dtype[numpy.int64]] True [1. 1.]",
        "True",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/smaps")
def test_numpy_asks_for_no_large_pages():
    code = """
from proreus import numpy_import
numpy_import.set_environment()
numpy_import.import_numpy()
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_number_of_threads_for_numpy_that_was_chosen_stays():
    code = """
import os
from proreus import numpy_import
numpy_import.set_environment()
print(os.environ["OPENBLAS_NUM_THREADS"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2"]


def test_the_environment_is_not_changed_while_other_threads_read_it(tmp_path):
    # Looking a name up reads it, without a lock: a start crashed now and then.
    code = """
import os, sys, threading
from proreus.cli import run
changed = []
def hook(event, arguments):
    if event in ("os.putenv", "os.unsetenv"):
        changed.append((arguments[0].decode(), threading.active_count()))
sys.addaudithook(hook)
print(run.main(sys.argv[1:]), changed)
"""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("""
clusters: [{name: c, cluster: {server: "http://localhost:9"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {}}]
""")
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "GOTOBLAS", "NUMPY"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code, f"--kubeconfig={kubeconfig}", "--leader-elect=false"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [
        "OPENBLAS_NUM_THREADS",
        "NUMPY_MADVISE_HUGEPAGE",
        "OPENBLAS_MAIN_FREE",
        "GOTOBLAS_MAIN_FREE",
    ]
    assert done.stdout.splitlines()[-1] == f"1 {[(name, 1) for name in names]}", done.stderr


def test_regular_expressions_of_yaml_are_compiled_at_their_first_use():
    code = """
import re
compile_now, compiled = re.compile, []
re.compile = lambda *args: compiled.append(args) or compile_now(*args)
from proreus import yaml_import
yaml_import.import_yaml()
from proreus import yaml_limits
print(len(compiled), re.compile is not yaml_import._Pattern)
import yaml
text = "{a: 2020-01-02, b: [1, 0x10, 1.5, yes, ~], c: '1'}"
print(yaml_limits.load(text.encode()) == yaml.safe_load(text), yaml.safe_load(text))
try:
    yaml.safe_load("a\\7")
except yaml.YAMLError as error:
    print(error.reason, error.position)
yaml_import.import_yaml()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "1 True",
        "True {'a': datetime.date(2020, 1, 2), 'b': [1, 16, 1.5, True, None], 'c': '1'}",
        "special characters are not allowed 1",
    ]


def test_the_library_for_entry_points_is_imported_only_where_a_package_has_plugins(tmp_path):
    code = """
import sys
from proreus.loading import PluginSources, load
load(PluginSources())
print("importlib.metadata" in sys.modules)
"""
    info = tmp_path / "gpu_tools-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-tools\nVersion: 1.2\n")
    found = []
    for group in ("console_scripts", "proreus.plugins"):
        (info / "entry_points.txt").write_text(f"[{group}]\nGpu = gpu_tools:Gpu\n")
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found += done.stdout.split()
    assert found == ["False", "True"]


def test_no_garbage_is_collected_while_modules_are_imported():
    code = """
import gc
from proreus.cli import main
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
from proreus.cli import open_standard_descriptors
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


@pytest.mark.parametrize("command", ["version", "run --config /does/not/exist", "simulate -"])
def test_commands_end_as_usual_without_standard_descriptors(command: str) -> None:
    shell = f'exec "$0" -m proreus {command} <&- >&- 2>&-'
    done = subprocess.run(["/bin/sh", "-c", shell, sys.executable], check=False)
    assert done.returncode == (0 if command == "version" else 1)
