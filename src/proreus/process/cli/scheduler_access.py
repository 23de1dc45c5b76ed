"""Finds a running scheduler for commands, and asks it as the caller.

With ``--scheduler URL`` directly, with the bearer token or client certificate of the kubeconfig.
Otherwise through the apiserver's proxy of a Service, which needs the right to ``get``
``services/proxy``. The proxy removes the caller's token, so it is sent in a header of our own too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from proreus.base.errors import ApiError, ConfigError, ProreusError
from proreus.process.cli.documented_options import with_options_of
from proreus.process.cli.kubeconfig import load_credentials

C = TypeVar("C", bound=Callable[..., Any])

_PATIENCE = 6
"""The number of repetitions of a proxied request that a standby has answered."""


@dataclass(frozen=True)
class SchedulerAccess:
    """The address of the scheduler, and the identity with which it is asked.

    --kubeconfig
        Kubeconfig; kubectl's by default.
    --context
        Context of the kubeconfig.
    --scheduler URL
        Address of the scheduler; otherwise through the apiserver.
    --service NAMESPACE/NAME
        Service of the scheduler. [default]
    --certificate-authority FILE
        CA of the scheduler's certificate, with --scheduler.
    --insecure-skip-tls-verify
        Do not verify that certificate.
    """

    kubeconfig: str = ""
    context: str | None = None
    scheduler: str = ""
    service: str = "proreus/proreus"
    certificate_authority: str = ""
    insecure_skip_tls_verify: bool = False

    def get(self, path: str, **query: str) -> bytes:
        """Return a page of the scheduler; raises ``ProreusError``."""
        return asyncio.run(self._get(path, urlencode(query)))

    async def _get(self, path: str, query: str) -> bytes:
        from msgspec import structs

        from proreus.client.credentials.credentials import Credentials
        from proreus.client.http.request_headers import user_agent
        from proreus.client.http.session import ApiClient
        from proreus.server.options import FORWARDED_AUTHORIZATION

        credentials = await load_credentials(self.kubeconfig, self.context)
        forwarded_as = ""
        if self.scheduler:
            tls = structs.replace(
                credentials.tls,
                ca_file=self.certificate_authority or credentials.tls.ca_file,
                verify=not self.insecure_skip_tls_verify,
            )
            credentials = Credentials(
                self.scheduler,
                tls,
                proxy=credentials.proxy,
                fetch=credentials.fetch,
                fetch_seconds=credentials.fetch_seconds,
            )
        else:
            namespace, _, name = self.service.partition("/")
            if not (namespace and name):
                raise ConfigError(f"--service: {self.service} is not NAMESPACE/NAME")
            proxy = f"/api/v1/namespaces/{namespace}/services/https:{name}:https/proxy"
            path, forwarded_as = proxy + path, FORWARDED_AUTHORIZATION
        agent = user_agent("explain")
        called = "scheduler" if self.scheduler else "apiserver"
        async with ApiClient(
            credentials, agent=agent, forwarded_as=forwarded_as, server_name=called
        ) as client:
            for attempt in range(_PATIENCE):
                try:
                    return await client.request("GET", path, query=query)
                except ApiError as error:
                    # A Service leads to any of its instances, of which one leads.
                    if error.status != 503 or self.scheduler or attempt == _PATIENCE - 1:
                        raise _explained(error, self) from error
        raise AssertionError("unreachable: the last attempt returns or raises")


def _explained(error: ApiError, access: SchedulerAccess) -> ProreusError:
    if _BAD_CERTIFICATE in str(error):
        return ProreusError(f"{error}\n{_remedy(access)}")
    if error.status == 403:
        hint = "you need the right to get the nonResourceURL /explain/*, and without --scheduler "
        return ProreusError(f"{error}\n{hint}to get services/proxy (docs/explain.md)")
    if error.status == 404 and not access.scheduler:
        return ProreusError(
            f"{error}\nis there a Service {access.service}? (--service, --scheduler)"
        )
    return ProreusError(str(error))


_BAD_CERTIFICATE = "certificate verify failed"


def _remedy(access: SchedulerAccess) -> str:
    """Return what to do about a certificate that is not accepted."""
    if not access.scheduler:
        return "certificate-authority of the kubeconfig has to be the CA of the apiserver"
    if access.certificate_authority:
        return (
            f"{access.certificate_authority} is not the CA of the scheduler's certificate, or the "
            "certificate has another host name"
        )
    return (
        "name the CA of the scheduler's certificate with --certificate-authority FILE; a scheduler "
        "without --tls-cert-file has a self-signed one, for --insecure-skip-tls-verify"
    )


def access_options(command: C) -> C:
    """Add the options that say where the scheduler is."""
    return with_options_of(SchedulerAccess, command)
