"""Commands as separate processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

PROREUS = (sys.executable, "-m", "proreus")


@pytest.fixture
def start():
    """Return a function that starts a command; processes that still run at the end are killed."""
    started = []

    def run(*arguments):
        process = subprocess.Popen(
            [*PROREUS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_sandbox_serves_until_a_signal(start, tmp_path, number):
    kubeconfig = tmp_path / "kubeconfig"
    process = start("sandbox", "--nodes", "3", "--kubeconfig", str(kubeconfig), "--token", "t")
    assert process.stdout.readline().startswith("serving 3 nodes at https://127.0.0.1:")
    content = yaml.safe_load(kubeconfig.read_text())
    assert content["users"][0]["user"] == {"token": "t"}
    assert os.stat(kubeconfig).st_mode & 0o777 == 0o600
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")


def test_sandbox_on_a_port_in_use_is_one_sentence(start, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        path = str(tmp_path / "kubeconfig")
        process = start("sandbox", "--nodes", "1", "--port", port, "--kubeconfig", path)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert err.startswith("Error: cannot serve on 127.0.0.1: ")
    assert len(err.splitlines()) == 1


def test_demo_schedules_pods_and_reports_reasons(start):
    process = start("demo", "--nodes", "12", "--pods", "200")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    words = out.split()
    assert "placements" in words
    assert "8 of 8 pods for default-scheduler left untouched" in out
    assert "Insufficient" in words


def served_demo(start):
    """Return a demo that stays, its child and what it has printed."""
    process = start("demo", "--nodes", "2", "--pods", "100", "--serve")
    printed = []
    while "Ctrl-C ends it." not in (line := process.stdout.readline()):
        printed.append(line)
        assert process.poll() is None
    folder = re.search(r"--kubeconfig (\S+)/kubeconfig", "".join(printed))[1]
    (child,) = (path for path in Path("/proc").glob("[0-9]*") if folder in arguments_of(path))
    return process, child, "".join(printed)


def arguments_of(process):
    """Return the command line of a process, "" for one that is gone."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def gone(path):
    """Return whether a file or process goes within 30 seconds."""
    deadline = time.monotonic() + 30
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not path.exists()


# The terminal that closes sends SIGHUP; SIGKILL leaves nobody to tidy up but the scheduler.
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9)]
)
def test_demo_ends_with_its_scheduler_and_its_folder(start, number, code):
    process, child, printed = served_demo(start)
    folder = Path(re.search(r"--kubeconfig (\S+)/kubeconfig", printed)[1])
    assert folder.is_dir()
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (code, "")
    assert gone(child)
    assert gone(folder)


def test_the_sandbox_ends_when_its_terminal_is_gone(tmp_path):
    ours, terminal = os.openpty()
    kubeconfig = tmp_path / "kubeconfig"
    command = [*PROREUS, "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, text=True)
    os.close(terminal)
    assert process.stdout.readline().startswith("serving")
    os.close(ours)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_the_demo_prints_how_to_explain_a_pod(start):
    _, _, printed = served_demo(start)
    (command,) = re.findall(r"^proreus (explain pod .*)$", printed, re.MULTILINE)
    out, err = start(*command.split()).communicate(timeout=30)
    assert err == ""
    assert out.startswith("Pod demo/")


def test_evaluate_writes_a_result_a_line(start, tmp_path):
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }
    requests = {"cpu": "2"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
    }
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"id": "x", "config": None, "objects": [node], "pod": pod}) + "\n")
    out, _ = start("evaluate", str(cases)).communicate(timeout=20)
    answer = json.loads(out)
    assert answer["id"] == "x"
    assert answer["expect"]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_evaluate_refuses_a_bad_configuration_once(start, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Nope\n")
    cases = tmp_path / "cases.jsonl"
    cases.write_text("")
    out, err = start("evaluate", "--config", str(config), str(cases)).communicate(timeout=20)
    assert out == ""
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 1
