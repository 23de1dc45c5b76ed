import asyncio
import io
import json
import socket
import ssl

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.base.metrics import SchedulerMetrics
from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.server.health import HealthCheck
from proreus.server.options import AuthenticationOptions, AuthorizationOptions, ServingOptions
from proreus.server.responses import plain
from proreus.server.server import EndpointSources, Server

OPEN = AuthorizationOptions(always_allow_paths=("*",))


async def test_health_is_open_and_the_rest_is_not(serve):
    client, _ = await serve()
    for path in ("/healthz", "/livez", "/readyz"):
        answer, body = await client(path)
        assert (answer.status, body) == (200, "ok")
        assert answer.headers["Cache-Control"] == "no-cache, private"
    for path in ("/metrics", "/configz", "/", "/nowhere", "/healthz/ping"):
        answer, body = await client(path)
        assert answer.status == 403
        assert answer.headers["Cache-Control"] == "no-cache, private"
        assert json.loads(body) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'forbidden: User "system:anonymous" cannot get path "{path}"',
            "reason": "Forbidden",
            "details": {},
            "code": 403,
        }


async def test_a_token_opens_what_the_cluster_allows(serve, FakeApi):
    api = FakeApi(tokens={"t": {"username": "prom"}}, allowed=[("prom", "get", "/metrics")])
    client, _ = await serve(api)
    headers = {"Authorization": "Bearer t"}
    assert (await client("/metrics", headers=headers))[0].status == 200
    assert (await client("/metrics", headers=headers, method="DELETE"))[0].status == 403
    assert (await client("/configz", headers=headers))[0].status == 403
    assert api.kinds() == ["TokenReview"] + ["SubjectAccessReview"] * 3


async def test_a_wrong_token_is_unauthorized_even_on_open_paths(serve, FakeApi):
    client, _ = await serve(FakeApi())
    answer, body = await client("/healthz", headers={"Authorization": "Bearer wrong"})
    assert answer.status == 401
    assert json.loads(body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


async def test_client_certificates_of_the_clusters_ca(serve, FakeApi, issue, authority, tmp_path):
    api = FakeApi(config_map={"client-ca-file": authority.pem})
    client, _ = await serve(api)
    admin = issue("admin", ["system:masters"], authority).write(tmp_path, "admin")
    assert (await client("/metrics", certificate=admin))[0].status == 200
    assert (await client("/metrics"))[0].status == 403
    other = issue("other-ca")
    stranger = issue("admin", ["system:masters"], other).write(tmp_path, "stranger")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await client("/metrics", certificate=stranger)


async def test_client_certificates_by_way_of_intermediates(
    serve, FakeApi, issue, authority, tmp_path
):
    client, _ = await serve(FakeApi(config_map={"client-ca-file": authority.pem}))
    region = issue("region-ca", issuer=authority, ca=True)
    team = issue("team-ca", issuer=region, ca=True)
    admin = issue("admin", ["system:masters"], team)
    through = admin.write(tmp_path, "through", [team, region])
    assert (await client("/metrics", certificate=through))[0].status == 200
    for name, certificate, sent in (
        ("gap", admin, [region]),
        ("no-ca", issue("x", ["system:masters"], issue("y", issuer=authority)), []),
        ("by-leaf", issue("x", ["system:masters"], admin), [admin, team, region]),
        ("extra", issue("x", ["system:masters"], issue("other-ca")), [team, region]),
    ):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await client("/metrics", certificate=certificate.write(tmp_path, name, sent))


async def test_an_intermediate_may_be_what_is_trusted(serve, FakeApi, issue, authority, tmp_path):
    team = issue("team-ca", issuer=authority, ca=True)
    client, _ = await serve(FakeApi(config_map={"client-ca-file": team.pem}))
    admin = issue("admin", ["system:masters"], team).write(tmp_path, "admin")
    assert (await client("/metrics", certificate=admin))[0].status == 200
    other = issue("admin", ["system:masters"], authority).write(tmp_path, "other")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await client("/metrics", certificate=other)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_second_connection_verifies_the_chain_again(
    version, serve, FakeApi, issue, authority, tmp_path
):
    """A resumed session would have the client's certificate, but not its intermediates."""
    _, server = await serve(FakeApi(config_map={"client-ca-file": authority.pem}))
    team = issue("team-ca", issuer=authority, ca=True)
    admin = issue("admin", ["system:masters"], team).write(tmp_path, "admin", [team])
    statuses = await asyncio.to_thread(get_twice, server.port, version, admin)
    assert statuses == [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK"]


def get_twice(port, version, certificate):
    """Request /metrics on two connections, the second with the session of the first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    context.load_cert_chain(*certificate)
    statuses, session = [], None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, session=session) as connection,
        ):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(65536):
                answer += part
            session = connection.session
        statuses.append(answer.partition(b"\r\n")[0])
    return statuses


async def test_metrics_in_both_formats_and_reset(serve):
    metrics = SchedulerMetrics()
    metrics.schedule_attempts_total.labels("scheduled", "default-scheduler").inc(3)
    client, _ = await serve(metrics=metrics, authorization=OPEN)
    answer, body = await client("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {family.name for family in parse_text(body)} >= {
        "scheduler_schedule_attempts",
        "scheduler_pending_pods",
        "process_cpu_seconds",
    }
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer, body = await client("/metrics", headers=openmetrics)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "scheduler_schedule_attempts" in {family.name for family in parse_openmetrics(body)}
    answer, body = await client("/metrics", method="DELETE")
    assert (answer.status, body) == (200, "metrics reset\n")
    _, body = await client("/metrics")
    assert (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 0.0'
        in body
    )


async def test_slis_after_health_requests(serve):
    client, _ = await serve(authorization=OPEN)
    await client("/livez")
    _, body = await client("/metrics/slis")
    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in body
    _, metrics = await client("/metrics")
    assert "kubernetes_healthcheck" not in metrics


async def test_health_sub_paths_and_failures(serve):
    sources = EndpointSources(
        metrics=SchedulerMetrics(),
        healthz=(HealthCheck("leaderElection", lambda: None),),
        readyz=(HealthCheck("sched-handler-sync", lambda: "handlers are not fully synchronized"),),
    )
    client, _ = await serve(sources=sources, authorization=OPEN)
    answer, body = await client("/healthz?verbose")
    assert body == "[+]leaderElection ok\nhealthz check passed\n"
    assert (await client("/healthz/ping"))[0].status == 404
    answer, body = await client("/readyz/sched-handler-sync")
    assert answer.status == 500
    assert body == "internal server error: handlers are not fully synchronized\n"
    answer, body = await client("/readyz?exclude=sched-handler-sync")
    assert (answer.status, body) == (200, "ok")


async def test_livez_has_checks_besides_ping(serve):
    problems: list[str | None] = [None]
    check = HealthCheck("scheduling-cycle", lambda: problems[0])
    sources = EndpointSources(metrics=SchedulerMetrics(), livez=(check,))
    client, _ = await serve(sources=sources, authorization=OPEN)
    _, body = await client("/livez?verbose")
    assert body == "[+]ping ok\n[+]scheduling-cycle ok\nlivez check passed\n"
    problems[0] = "a scheduling cycle has been running for 61 s"
    answer, body = await client("/livez")
    assert answer.status == 500
    assert "[-]scheduling-cycle failed: reason withheld" in body


async def test_configz(serve):
    sources = EndpointSources(
        metrics=SchedulerMetrics(),
        configz=lambda: {"apiVersion": "v1", "kind": "KubeSchedulerConfiguration"},
    )
    client, _ = await serve(sources=sources, authorization=OPEN)
    answer, body = await client("/configz")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "componentconfig": {"apiVersion": "v1", "kind": "KubeSchedulerConfiguration"}
    }


async def test_statusz_lists_the_pages_that_are_added(serve):
    client, server = await serve(authorization=OPEN)
    server.add_page("/pluginz", lambda _: None)
    _, body = await client("/statusz")
    listed = next(line for line in body.splitlines() if line.startswith("Paths"))
    paths = "/configz /flagz /healthz /livez /metrics /pluginz /readyz"
    assert listed.endswith(paths)


async def test_unknown_paths(serve):
    client, _ = await serve(authorization=OPEN)
    answer, body = await client("/nowhere")
    assert (answer.status, body) == (404, "404 page not found\n")


async def test_verbosity_is_set_by_put(serve):
    client, _ = await serve(authorization=OPEN)
    try:
        answer, body = await client("/debug/flags/v", method="PUT", data="4")
        assert (answer.status, body) == (200, "successfully set klog.logging.verbosity to 4")
        assert logs.verbosity() == 4
        answer, body = await client("/debug/flags/v", method="PUT", data="loud")
        assert answer.status == 400
        answer, body = await client("/debug/flags/v")
        assert (answer.status, body.strip()) == (406, "unsupported http method")
        assert logs.verbosity() == 4
    finally:
        logs.set_verbosity(0)


async def test_a_body_over_the_limit_is_a_413(serve, caplog):
    client, _ = await serve(authorization=OPEN)
    body = io.BytesIO(b"4" * (1 << 20) + b"4")
    answer, text = await client("/debug/flags/v", method="PUT", data=body)
    assert answer.status == 413
    assert json.loads(text)["reason"] == "RequestEntityTooLarge"
    assert caplog.records == []


async def test_without_profiling_there_are_no_debug_pages(serve):
    sources = EndpointSources(metrics=SchedulerMetrics(), profiling=False)
    client, _ = await serve(sources=sources, authorization=OPEN)
    assert (await client("/debug/flags/v", method="PUT", data="4"))[0].status == 404


async def test_pod_resources_are_the_leaders(serve):
    pods = None
    sources = EndpointSources(metrics=SchedulerMetrics(), leader_pods=lambda: pods)
    client, _ = await serve(sources=sources, authorization=OPEN)
    answer, body = await client("/metrics/resources")
    assert (answer.status, body) == (200, "")
    pod = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            "schedulerName": "default-scheduler",
        },
    }
    pods = [decoder_for(Pod).decode(json.dumps(pod).encode())]
    _, body = await client("/metrics/resources")
    (family,) = parse_text(body)
    (sample,) = family.samples
    assert (family.name, family.type, sample.value) == ("kube_pod_resource_request", "gauge", 0.1)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    _, body = await client("/metrics/resources", headers=accept)
    assert len(list(parse_openmetrics(body))) == 1


async def test_an_exception_in_a_page_is_a_500(serve, caplog):
    def broken():
        raise RuntimeError("secret")

    sources = EndpointSources(metrics=SchedulerMetrics(), configz=broken)
    client, _ = await serve(sources=sources, authorization=OPEN)
    answer, body = await client("/configz")
    assert answer.status == 500
    assert "secret" not in body
    assert (await client("/healthz"))[0].status == 200
    assert any(record.getMessage() == "A page failed" for record in caplog.records)


async def test_further_pages(serve):
    client, server = await serve(authorization=OPEN)
    server.add_page("/why", lambda request: plain(request.query["pod"]))
    assert (await client("/why?pod=a"))[1] == "a"


async def test_files_serve_and_are_reloaded(serve, issue, tmp_path, authority):
    certificate, key = issue("first", issuer=authority, dns=["a"]).write(tmp_path)
    serving = ServingOptions(
        tls_cert_file=certificate, tls_private_key_file=key, tls_min_version="VersionTLS13"
    )
    _, server = await serve(serving=serving)

    def served():
        return ssl.get_server_certificate(("127.0.0.1", server.port))

    before = await asyncio.to_thread(served)
    assert before == (tmp_path / "tls.crt").read_text()
    assert not server._certificate.reload_if_changed()
    issue("second", issuer=authority, dns=["a"]).write(tmp_path)
    assert server._certificate.reload_if_changed()
    assert await asyncio.to_thread(served) == (tmp_path / "tls.crt").read_text() != before
    (tmp_path / "tls.crt").write_text("broken")
    assert not server._certificate.reload_if_changed()
    assert (await asyncio.to_thread(served)) != before


async def test_port_0_serves_nothing():
    server = Server(ServingOptions(secure_port=0), EndpointSources(metrics=SchedulerMetrics()))
    async with server:
        assert server.port == 0


async def test_a_port_in_use_is_one_clear_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ServingOptions(
            bind_address="127.0.0.1",
            secure_port=port,
            authentication=AuthenticationOptions(skip_lookup=True),
        )
        with pytest.raises(ConfigError, match=f"failed to listen on 127.0.0.1:{port}: .*in use"):
            await Server(options, EndpointSources(metrics=SchedulerMetrics())).start()


async def test_all_invalid_options_are_reported():
    options = ServingOptions(
        secure_port=70000,
        tls_cert_file="a",
        tls_min_version="SSLv3",
        tls_cipher_suites=("TLS_NULL",),
    )
    with pytest.raises(ConfigError) as caught:
        Server(options, EndpointSources(metrics=SchedulerMetrics()))
    assert caught.value.problems[0] == (
        "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0"
    )
    assert len(caught.value.problems) == 4
