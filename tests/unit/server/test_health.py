import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.base.metrics import expose
from proreus.server.health import PING, HealthCheck, HealthEndpoint, HealthMetrics


@pytest.fixture
def metrics():
    return HealthMetrics()


@pytest.fixture
def state():
    return {"synced": False}


@pytest.fixture
def readyz(metrics, state):
    problem = "handlers are not fully synchronized"
    return HealthEndpoint(
        "readyz",
        [
            HealthCheck("shutdown", lambda: None),
            HealthCheck("sched-handler-sync", lambda: None if state["synced"] else problem),
        ],
        metrics,
    )


def test_failing(readyz):
    answer = readyz.root([])
    assert answer.status == 500
    assert answer.text == (
        "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
    )


def test_well(readyz, state):
    state["synced"] = True
    answer = readyz.root([])
    assert (answer.status, answer.text) == (200, "ok")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_verbose(readyz, state):
    state["synced"] = True
    assert readyz.root([("verbose", "")]).text == (
        "[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n"
    )


def test_exclude(readyz):
    answer = readyz.root(
        [("verbose", ""), ("exclude", "sched-handler-sync"), ("exclude", "x"), ("exclude", "a")]
    )
    assert answer.status == 200
    assert answer.text == (
        "[+]shutdown ok\n"
        "[+]sched-handler-sync excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","x"\n'
        "readyz check passed\n"
    )


def test_single_checks(readyz, state):
    answer = readyz.single("sched-handler-sync")
    assert answer.status == 500
    assert answer.text == "internal server error: handlers are not fully synchronized\n"
    state["synced"] = True
    assert readyz.single("sched-handler-sync").text == "ok"
    assert readyz.single("unknown") is None


def test_slis_have_the_last_result_and_count_all(readyz, state, metrics):
    HealthEndpoint("livez", [PING], metrics).root([])
    readyz.root([])
    state["synced"] = True
    readyz.root([])
    readyz.root([("exclude", "shutdown")])
    samples = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(expose(metrics)[0].decode())
        for sample in family.samples
    }
    assert samples == {
        ("kubernetes_healthcheck", "ping", "livez"): 1,
        ("kubernetes_healthcheck", "shutdown", "readyz"): 1,
        ("kubernetes_healthcheck", "sched-handler-sync", "readyz"): 1,
        ("kubernetes_healthchecks_total", "ping", "success", "livez"): 1,
        ("kubernetes_healthchecks_total", "shutdown", "success", "readyz"): 2,
        ("kubernetes_healthchecks_total", "sched-handler-sync", "success", "readyz"): 2,
        ("kubernetes_healthchecks_total", "sched-handler-sync", "error", "readyz"): 1,
    }
