import contextlib

import pytest

from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.client.writing.request_window import RequestWindow
from proreus.config.types import ClientConnection, SchedulerConfiguration
from proreus.process import clients
from proreus.process.options import RunOptions
from proreus.process.process_state import ProcessState
from proreus.server.options import AuthorizationOptions, ServingOptions


@pytest.mark.parametrize(
    ("options", "kubeconfig", "environ", "ignored"),
    [
        ({"kubeconfig": "a"}, "", {}, {}),
        ({"config": "c", "kubeconfig": "a"}, "a", {}, {}),
        (
            {"config": "c", "kubeconfig": "a"},
            "b",
            {"KUBECONFIG": "a"},
            {"ignored": ["--kubeconfig"], "instead": ["clientConnection.kubeconfig"]},
        ),
        (
            {"config": "c", "kubeconfig": "a", "kube_api_qps": 5.0, "profiling": False},
            "",
            {"KUBECONFIG": "a"},
            {
                "ignored": ["--kubeconfig", "--kube-api-qps", "--profiling", "KUBECONFIG"],
                "instead": [
                    "clientConnection.kubeconfig",
                    "clientConnection.qps",
                    "enableProfiling",
                ],
            },
        ),
        ({}, "", {"KUBECONFIG": "a"}, {"ignored": ["KUBECONFIG"], "instead": ["--kubeconfig"]}),
        ({"master": "http://a"}, "", {"KUBECONFIG": "a"}, {}),
    ],
)
def test_settings_without_effect_are_named_with_what_to_write_instead(
    options, kubeconfig, environ, ignored
):
    config = SchedulerConfiguration(client_connection=ClientConnection(kubeconfig=kubeconfig))
    assert clients.ignored_settings(RunOptions(**options), config, environ) == ignored


@pytest.mark.parametrize(
    ("options", "kubeconfig", "flag"),
    [
        ({}, "/nope", "--kubeconfig, or by clientConnection.kubeconfig beside --config"),
        (
            {"serving": ServingOptions(authorization=AuthorizationOptions(kubeconfig="/nope"))},
            "",
            "--authorization-kubeconfig",
        ),
    ],
)
async def test_a_kubeconfig_that_is_not_there_is_said_with_the_flag(options, kubeconfig, flag):
    config = SchedulerConfiguration(client_connection=ClientConnection(kubeconfig=kubeconfig))
    given = RunOptions(**({"master": "http://127.0.0.1:1"} if not kubeconfig else {}), **options)
    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(ConfigError) as caught:
            await clients.make_clients(given, config, SchedulerMetrics(), stack)
    explained = f"kubeconfig: no such file: /nope; name a kubeconfig by {flag}"
    assert caught.value.explained == explained


def test_a_standby_names_who_leads():
    state = ProcessState(SchedulerConfiguration())
    assert state.standby() == "this instance does not lead, and knows no other that does"
    state.leader = lambda: "proreus-5d9f-x2x_0c1f"
    assert state.standby() == (
        "this instance does not lead; ask proreus-5d9f-x2x, which holds the Lease "
        "(as proreus-5d9f-x2x_0c1f)"
    )
    state.leads = True
    assert state.standby() == ""


def test_requests_are_counted():
    metrics = SchedulerMetrics()
    hooks = clients.request_hooks(metrics)
    hooks.on_request("201", "POST", "POST", "h:1", 0.01, 300, 200)
    hooks.on_request("200", "GET", "WATCH", "h:1", 60.0, 0, 0)
    hooks.on_request("<error>", "GET", "GET", "h:1", 1.0, 0, 0)
    hooks.on_retry("429", "POST", "h:1")
    hooks.on_throttle("POST", "h:1", 0.5)
    assert dict(metrics.rest_client_requests_total.values()) == {
        ("201", "POST", "h:1"): 1,
        ("200", "GET", "h:1"): 1,
        ("<error>", "GET", "h:1"): 1,
    }
    durations = dict(metrics.rest_client_request_duration_seconds.histograms())
    assert {labels: child.sum for labels, child in durations.items()} == {
        ("POST", "h:1"): 0.01,
        ("GET", "h:1"): 1.0,
    }
    sizes = dict(metrics.rest_client_request_size_bytes.histograms())
    assert sizes.keys() == {("POST", "h:1")}
    assert dict(metrics.rest_client_request_retries_total.values()) == {("429", "POST", "h:1"): 1}
    ((_, waits),) = metrics.rest_client_rate_limiter_duration_seconds.histograms()
    assert waits.sum == 0.5


def test_the_window_of_writes_is_shown():
    metrics, window = SchedulerMetrics(), RequestWindow(10)
    clients.show_request_window(window, metrics)
    window.overloaded("rejected", sent_at=0.0, namespace="a")
    assert dict(metrics.request_window.values()) == {(): 5}
    assert dict(metrics.request_window_in_flight.values()) == {(): 0}
    assert dict(metrics.request_window_waiting.values()) == {("normal",): 0, ("low",): 0}
    assert dict(metrics.request_window_shrinks_total.values()) == {("rejected",): 1}
