"""``proreus run`` as a process on an embedded cluster: start, endpoints and end."""

import asyncio
import json
import signal
import socket

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text


@pytest.fixture
def token_file(sandbox, tmp_path):
    """The file of a token that the cluster does not know, and a kubeconfig that names it."""
    token = tmp_path / "token"
    token.write_text("wrong")
    content = sandbox.kubeconfig()
    content["users"][0]["user"] = {"tokenFile": str(token)}
    path = tmp_path / "stranger"
    path.write_text(yaml.safe_dump(content))
    return token, path


async def test_it_serves_schedules_and_ends_with_0(start, sandbox, kubeconfig, live):
    port = live.port()
    flags = (
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    )
    process = await start(
        *(f"--kubeconfig={kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"),
        *(*flags, "--leader-elect=false", "--contention-profiling"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    sandbox.store.create("pods", live.pod("a"))
    await live.until(
        lambda: sandbox.store.get("pods", "a", "default").object()["spec"].get("nodeName")
    )

    assert (await pages.get("/metrics", anonymous=True))[0] == 403
    status, body = await pages.get("/metrics")
    assert status == 200
    values = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(body)
        for sample in family.samples
    }
    assert values["scheduler_schedule_attempts_total", "default-scheduler", "scheduled"] == 1
    assert values["scheduler_pending_pods", "active"] == 0
    assert values["kubernetes_feature_enabled", "SchedulerAsyncPreemption", "BETA"] == 1
    assert any(name == "rest_client_requests_total" for name, *_ in values)

    _, body = await pages.get("/configz")
    configuration = json.loads(body)["componentconfig"]
    assert configuration["kind"] == "KubeSchedulerConfiguration"
    assert configuration["leaderElection"]["leaderElect"] is False
    _, body = await pages.get("/metrics/resources")
    assert 'kube_pod_resource_request{namespace="default",' in body
    _, body = await pages.get("/flagz")
    assert "contention-profiling" in body

    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert (code, "Traceback" in err) == (0, False)
    assert "--contention-profiling" in err
    assert err.splitlines()[-1].endswith('] "Requested to terminate, exiting"')


async def test_a_second_instance_takes_over(start, sandbox, kubeconfig, live):
    flags = (f"--kubeconfig={kubeconfig}", "--secure-port=0")
    first = await start(*flags)
    await holder_other_than(live, sandbox, "")
    second = await start(*flags)
    before = holder(sandbox)
    first.send_signal(signal.SIGTERM)
    assert (await live.ended(first))[0] == 0
    await holder_other_than(live, sandbox, before)
    second.send_signal(signal.SIGINT)
    assert (await live.ended(second))[0] == 0
    assert holder(sandbox) == ""


def holder(sandbox):
    leases = sandbox.store.list("leases.coordination.k8s.io", "kube-system")
    specs = [version.object()["spec"] for version in leases]
    return next((spec.get("holderIdentity") or "" for spec in specs), "")


async def holder_other_than(live, sandbox, before):
    await live.until(lambda: holder(sandbox) not in ("", before))


async def failure(live, process):
    """Return the error of a process that failed to start, which must be one line."""
    code, err = await live.ended(process)
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("E")]
    assert len(lines) == 1
    assert "Traceback" not in err
    return lines[0].partition("] ")[2]


async def test_no_configuration_file(start, live):
    process = await start("--config=/nowhere.yaml")
    expected = '"command failed" err="open /nowhere.yaml: no such file or directory"'
    assert await failure(live, process) == expected


async def test_a_bad_configuration_file(start, tmp_path, live):
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: [\n")
    assert (await failure(live, await start(f"--config={path}"))).startswith(
        '"command failed" err='
    )


async def test_no_kubeconfig(start, live):
    text = await failure(live, await start("--kubeconfig=/nowhere"))
    assert "/nowhere" in text


async def test_an_unreachable_apiserver(start, live):
    port = live.port()
    text = await failure(live, await start(f"--master=http://127.0.0.1:{port}", "--secure-port=0"))
    assert f"127.0.0.1:{port}" in text


async def test_a_signal_while_the_apiserver_does_not_answer_at_the_start(start, live):
    asked = asyncio.Event()

    async def hang(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        # the first lists come before all else, while a signal ends a process as any other
        if head.startswith(b"GET /version "):
            asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await start(f"--master=http://127.0.0.1:{port}", "--secure-port=0")
        await asked.wait()
        process.send_signal(signal.SIGTERM)
        code, err = await live.ended(process)
    assert (code, err.count("\n")) == (0, 1), err
    assert "Requested to terminate, exiting" in err


async def test_a_signal_while_the_apiserver_does_not_answer_any_more(
    start, sandbox, tmp_path, live
):
    """A scraper waits for its TokenReview, and the Lease cannot be released."""
    target = int(sandbox.secure_url.rpartition(":")[2])
    async with StallingProxy(target) as proxy:
        proxied = tmp_path / "proxied"
        text = yaml.safe_dump(sandbox.kubeconfig())
        proxied.write_text(text.replace(f":{target}", f":{proxy.port}"))
        port = live.port()
        process = await start(
            f"--kubeconfig={proxied}",
            *("--leader-elect=true", "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *(f"--authentication-kubeconfig={proxied}", f"--authorization-kubeconfig={proxied}"),
        )
        await live.Pages(port, sandbox.token).ready()
        proxy.stalls = True
        scrape = asyncio.create_task(live.Pages(port, "unknown").get("/metrics"))
        await proxy.stalled.wait()
        process.send_signal(signal.SIGTERM)
        code, err = await live.ended(process)
        await asyncio.wait((scrape,))
        assert scrape.exception() is not None
    assert code == 0, err
    assert "Requested to terminate, exiting" in err


class StallingProxy:
    """Forwards bytes both ways until ``stalls`` is set, and nothing from then on."""

    def __init__(self, target):
        self._target = target
        self.stalls = False
        self.stalled = asyncio.Event()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _forward(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                if self.stalls:
                    self.stalled.set()
                    continue
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


async def test_a_token_that_is_refused_at_first(start, token_file, sandbox, live):
    token, kubeconfig = token_file
    port = live.port()
    process = await start(
        f"--kubeconfig={kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"
    )
    refused = serving = b""
    while not (refused and serving):  # in either order
        line = await process.stderr.readline()
        assert line, "the process has ended"
        refused = line if b"refuses requests that the start needs" in line else refused
        serving = line if b"Serving securely" in line else serving
    assert b"Unauthorized" in refused
    pages = live.Pages(port, sandbox.token)
    assert (await pages.get("/healthz", anonymous=True))[0] == 200
    assert (await pages.get("/readyz", anonymous=True))[0] == 500
    token.write_text(sandbox.token)
    await pages.ready()
    process.send_signal(signal.SIGTERM)
    assert (await live.ended(process))[0] == 0


@pytest.mark.parametrize("fault", ["port", "certificate"])
async def test_a_replica_that_cannot_serve_does_not_lead(start, sandbox, kubeconfig, live, fault):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if fault == "port" else live.port()
        certificate = ("--tls-cert-file=/nope", "--tls-private-key-file=/nope")
        process = await start(
            *(f"--kubeconfig={kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"),
            *(certificate if fault == "certificate" else ()),
        )
        code, log = await live.ended(process)
    assert code == 1
    assert ("failed to listen" if fault == "port" else "cannot serve with certificate") in log
    assert "leads" not in log


# ---- out-of-tree plugins -----------------------------------------------------------------------

PLUGINS = """\
import threading

from proreus.framework.plugin import FilterPlugin, PreBindPlugin

class Broken(FilterPlugin):
    def filter(self, state, pod, node):
        raise ValueError("out of order")

class Blocking(PreBindPlugin):
    async def pre_bind(self, state, pod, node_name):
        threading.Event().wait(0.3)
"""


def configured(tmp_path, kubeconfig, *enabled):
    """Write a configuration that enables plugins, and return the flag that names it."""
    path = tmp_path / "config.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": True, "resourceName": "mine"},
        "profiles": [
            {"plugins": {"multiPoint": {"enabled": [{"name": name} for name in enabled]}}}
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return f"--config={path}"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "plugins"
    path.mkdir()
    (path / "a.py").write_text(PLUGINS)
    (path / "bad.py").write_text("import nothing_like_that\n\nclass Bad: ...\n")
    return path


async def test_a_plugin_that_is_refused_ends_the_start_if_it_is_named(
    start, tmp_path, kubeconfig, folder, live
):
    named = configured(tmp_path, kubeconfig, "Bad")
    process = await start(named, f"--plugin-dir={folder}", "--secure-port=0")
    code, err = await live.ended(process)
    place = f"{folder}/bad.py:1"
    assert code == 1
    assert f"plugin Bad cannot be used: {place}: cannot be imported: ModuleNotFoundError" in err
    refused = next(line for line in err.splitlines() if '"Plugin refused"' in line)
    assert f'place="{place}"' in refused


async def test_plugins_that_fail_or_block_are_reported(
    start, sandbox, tmp_path, kubeconfig, folder, live
):
    port = live.port()
    process = await start(
        configured(tmp_path, kubeconfig, "Broken", "Blocking"),
        *(f"--plugin-dir={folder}", "--plugin-failure-policy=skip"),
        *("--loop-blocked-threshold=100ms", "--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    for number in range(6):
        sandbox.store.create("pods", live.pod(f"p{number}"))
    placed = lambda name: sandbox.store.get("pods", name, "default").object()["spec"]  # noqa: E731
    await live.until(lambda: all(placed(f"p{number}").get("nodeName") for number in range(6)))

    _, body = await pages.get("/pluginz")
    behaviour = {one["plugin"]: one for one in json.loads(body)["plugins"]}
    assert (behaviour["Broken"]["skipped"], behaviour["Blocking"]["skipped"]) == (True, False)
    _, body = await pages.get("/metrics")
    values = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(body)
        for sample in family.samples
    }
    assert values["proreus_plugin_failures_total", "Filter", "Broken", "raised"] == 5
    assert values["proreus_plugin_skipped", "Broken", "default-scheduler"] == 1
    assert values["proreus_loop_blocked_total", "Blocking"] >= 1
    assert values["proreus_loop_lag_seconds_count",] > 0

    def events():
        return [version.object() for version in sandbox.store.list("events.events.k8s.io")]

    await live.until(lambda: any(event["reason"] == "PluginSkipped" for event in events()))
    skipped = next(event for event in events() if event["reason"] == "PluginSkipped")
    assert (skipped["regarding"]["kind"], skipped["regarding"]["name"]) == ("Lease", "mine")
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert code == 0
    assert err.count('"Plugin raised"') == 1
    assert f'place="{folder}/a.py:11"' in err


WAITING = """\
import asyncio

from proreus.framework.plugin import PostFilterPlugin, PreBindPlugin

class Waits(PostFilterPlugin, PreBindPlugin):
    async def post_filter(self, state, pod, verdicts):
        await asyncio.sleep(1000)

    async def pre_bind(self, state, pod, node_name):
        if pod.name == "slow":
            await asyncio.sleep(1000)
"""


async def test_a_plugin_that_never_returns_holds_up_its_own_pod_only(
    start, sandbox, tmp_path, kubeconfig, folder, live
):
    (folder / "a.py").write_text(WAITING)
    port = live.port()
    process = await start(
        configured(tmp_path, kubeconfig, "Waits"),
        *(f"--plugin-dir={folder}", "--plugin-await-timeout=200ms", "--plugin-bind-timeout=4s"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
    )
    pages = live.Pages(port, sandbox.token)
    await pages.ready()
    big = live.pod("big")
    big["spec"]["nodeSelector"] = {"no": "where"}
    for pod in (big, live.pod("slow"), live.pod("other")):
        sandbox.store.create("pods", pod)

    def read(name):
        return sandbox.store.get("pods", name, "default").object()

    def message_of(name):
        conditions = read(name)["status"].get("conditions", ())
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    await live.until(lambda: read("other")["spec"].get("nodeName"))
    text = 'plugin "Waits" has not returned from PostFilter within 0.2s and was cancelled'
    await live.until(lambda: message_of("big").endswith(text))
    _, body = await pages.get("/pluginz")
    (slow,) = json.loads(body)["bindings"]["oldest"]
    assert (slow["pod"], slow["point"], slow["plugins"]) == ("default/slow", "PreBind", ["Waits"])
    text = 'plugin "Waits" has not returned from PreBind within 4s and was cancelled'
    await live.until(lambda: message_of("slow").endswith(text))
    sandbox.store.delete("pods", "slow", "default")
    process.send_signal(signal.SIGTERM)
    code, err = await live.ended(process)
    assert code == 0, err


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}]},
            'ScorePlugin "NoSuchPlugin" does not exist',
        ),
        (
            {
                "extenders": [
                    {
                        "urlPrefix": "https://127.0.0.1:443",
                        "filterVerb": "filter",
                        "enableHTTPS": True,
                        "tlsConfig": {"caFile": "/nowhere/ca.crt"},
                    }
                ]
            },
            "couldn't build extenders: open /nowhere/ca.crt: no such file or directory",
        ),
        ({}, ""),
    ],
    ids=["plugin", "extender", "neither"],
)
async def test_a_configuration_is_written_once_a_scheduler_was_made_of_it(
    start, live, tmp_path, config, error
):
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [cluster],
                "contexts": [context],
                "users": users,
            }
        )
    )
    file, out = tmp_path / "config.yaml", tmp_path / "out.yaml"
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }
    file.write_text(yaml.safe_dump({**head, **config}))
    process = await start(f"--config={file}", f"--write-config-to={out}")
    code, log = await live.ended(process)
    assert code == (1 if error else 0)
    assert out.exists() is not bool(error)
    assert error.replace('"', '\\"') in log
