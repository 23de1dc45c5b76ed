from proreus.base.metrics import SchedulerMetrics
from proreus.client.writing.request_window import RequestWindow
from proreus.process import clients


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
