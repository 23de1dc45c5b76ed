"""Commands find the scheduler, directly or through the apiserver, and ask as the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from aiohttp import web

from proreus.base.errors import ConfigError, ProreusError
from proreus.client.http.responses import Unreachable
from proreus.process.cli.kubeconfig import load_credentials
from proreus.process.cli.scheduler_access import SchedulerAccess, _explained
from proreus.server.options import FORWARDED_AUTHORIZATION


async def test_a_kubeconfig_that_is_not_there_is_said_with_the_flag(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refusal(kubeconfig: str) -> str:
        with pytest.raises(ConfigError) as caught:
            await load_credentials(kubeconfig, None)
        return caught.value.explained

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert "; name a kubeconfig by --kubeconfig or KUBECONFIG" in await refusal("")
    absent = "kubeconfig: no such file: /nope; name a kubeconfig that is there by "
    assert await refusal("/nope") == f"{absent}--kubeconfig"
    monkeypatch.setenv("KUBECONFIG", "/nope")
    assert await refusal("") == f"{absent}KUBECONFIG"


PROXY = "/api/v1/namespaces/proreus/services/https:proreus:https/proxy/explain/queue"


class Answers:
    """A server that answers with the statuses that a test gives, then with 200."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.statuses: list[int] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        body = {"kind": "Status", "status": "Failure", "message": "told", "code": status}
        return web.json_response(body, status=status)


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    made, app = Answers(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def access(answers: Answers, tmp_path: Any) -> Any:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": answers.url}}
    user = {"name": "u", "user": {"token": "secret"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "users": [user], "contexts": [context]}
    kubeconfig.write_text(yaml.safe_dump({**config, "current-context": "x", "kind": "Config"}))

    def make(scheduler: str = "", service: str = "proreus/proreus") -> SchedulerAccess:
        return SchedulerAccess(str(kubeconfig), None, scheduler, service, "", False)

    return make


async def test_through_the_proxy_of_its_service(answers: Answers, access: Any) -> None:
    await access()._get("/explain/queue", "a=b")
    (request,) = answers.requests
    assert (request.path, request.query_string) == (PROXY, "a=b")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers[FORWARDED_AUTHORIZATION] == "Bearer secret"


async def test_directly(answers: Answers, access: Any) -> None:
    await access(scheduler=answers.url)._get("/explain/queue", "")
    (request,) = answers.requests
    assert request.path == "/explain/queue"
    assert request.headers["Authorization"] == "Bearer secret"
    assert FORWARDED_AUTHORIZATION not in request.headers


async def test_a_standby_is_asked_again_only_through_the_service(
    answers: Answers, access: Any
) -> None:
    answers.statuses = [503, 503]
    await access()._get("/explain/queue", "")
    assert len(answers.requests) == 3
    answers.statuses = [503]
    with pytest.raises(ProreusError, match="told"):
        await access(scheduler=answers.url)._get("/explain/queue", "")


@pytest.mark.parametrize(("status", "hint"), [(403, "services/proxy"), (404, "is there a Service")])
async def test_refusals_say_what_is_missing(
    answers: Answers, access: Any, status: int, hint: str
) -> None:
    answers.statuses = [status]
    with pytest.raises(ProreusError, match=hint):
        await access()._get("/explain/queue", "")


async def test_a_service_has_a_namespace(access: Any) -> None:
    with pytest.raises(ConfigError, match="NAMESPACE/NAME"):
        await access(service="proreus")._get("/explain/queue", "")


async def test_a_scheduler_that_cannot_be_reached_is_called_the_scheduler(
    answers: Answers, access: Any
) -> None:
    with pytest.raises(ProreusError, match=r"the scheduler http://127.0.0.1:1 cannot be reached"):
        await access(scheduler="http://127.0.0.1:1")._get("/explain/queue", "")


@pytest.mark.parametrize(
    ("scheduler", "authority", "remedy"),
    [
        ("https://s", "", "--insecure-skip-tls-verify"),
        ("https://s", "ca.pem", "ca.pem is not the CA"),
        ("", "", "certificate-authority of the kubeconfig"),
    ],
)
def test_a_certificate_that_is_not_accepted_names_the_remedy(
    scheduler: str, authority: str, remedy: str
) -> None:
    error = Unreachable("certificate verify failed: self-signed certificate")
    access = SchedulerAccess(scheduler=scheduler, certificate_authority=authority)
    assert remedy in str(_explained(error, access))
