"""Watches the custom resources by kopf, each from the time when its definition appears.

It runs in a thread with an event loop of its own: at its end it cancels every task of its loop that
it does not know. What it sees is handed to the loop of the process. Its handlers are those of
events, so that it writes nothing: no finalizer, no annotation, no Event.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from proreus.base import logs
from proreus.base.errors import ProreusError
from proreus.client.credentials.credentials import Credentials
from proreus.controller.status_reconciler import StatusReconciler, WithStatus
from proreus.controller.status_writer import StatusWriter
from proreus.objects.codec import decoder_for

log = logs.logger(__name__)

_CREDENTIALS_SECONDS = 60.0
"""Tokens and certificates are rotated: they are read again that often."""
_END_SECONDS = 10.0


class OperatorThread:
    """A kopf operator over some kinds that reports to a ``StatusWriter``.

    ``load_credentials`` is called on the operator's loop, to which they belong then.
    """

    def __init__(
        self,
        kinds: Sequence[StatusReconciler[Any]],
        writer: StatusWriter,
        load_credentials: Callable[[], Awaitable[Credentials]],
    ) -> None:
        self._kinds = kinds
        self._writer = writer
        self._load_credentials = load_credentials
        self._credentials: Credentials | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended_early = False

    async def run(self) -> None:
        """Watch until cancelled; raise the exception that ended the operator."""
        main = asyncio.get_running_loop()
        ended: asyncio.Future[None] = main.create_future()

        def run_in_thread() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._operate(main))
            except BaseException as caught:
                error = caught
            if not main.is_closed():
                main.call_soon_threadsafe(_end, ended, error)

        thread = threading.Thread(target=run_in_thread, name="kopf", daemon=True)
        thread.start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._ended_early = True
            if self._loop is not None and self._stop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.wait([ended], timeout=_END_SECONDS)
            raise
        raise ProreusError("kopf's operator has ended by itself")

    async def _operate(self, main: asyncio.AbstractEventLoop) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        if self._ended_early:
            return
        self._credentials = await self._load_credentials()
        # kopf says of every event that it has handled it.
        logging.getLogger("kopf").setLevel(logging.WARNING)
        await kopf.operator(
            registry=self._registry(main),
            settings=_settings(),
            standalone=True,
            clusterwide=True,
            stop_flag=self._stop,
        )

    def _registry(self, main: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for index, kind in enumerate(self._kinds):
            resource = kind.resource
            watch = kopf.on.event(
                resource.group, resource.version, resource.plural, registry=registry
            )
            watch(self._handler(main, index, resource.type))
        return registry

    def _handler(
        self, main: asyncio.AbstractEventLoop, index: int, type_: type[Any]
    ) -> Callable[..., Awaitable[None]]:
        decoder, writer = decoder_for(type_), self._writer

        async def report(event: dict[str, Any], **_: Any) -> None:
            body = event["object"]
            meta = body["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            if event["type"] == "DELETED":
                main.call_soon_threadsafe(writer.remove, index, key)
                return
            obj = WithStatus(decoder.convert(body), dict(body.get("status") or {}))
            main.call_soon_threadsafe(writer.put, index, key, obj)

        return report

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """Return the credentials as kopf knows them."""
        assert self._credentials is not None
        authorization = await self._credentials.fetch_authorization()
        scheme, _space, token = authorization.partition(" ")
        tls = self._credentials.tls
        return kopf.ConnectionInfo(
            server=self._credentials.server,
            ca_path=tls.ca_file,
            insecure=not tls.verify,
            certificate_path=tls.cert_file,
            private_key_path=tls.key_file,
            scheme=scheme or None,
            token=token or None,
            proxy_url=self._credentials.proxy,
            expiration=datetime.now(UTC) + timedelta(seconds=_CREDENTIALS_SECONDS),
        )


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    return settings
