"""Runs an exec credential plugin: a program that prints an ExecCredential (client-go's ``exec``).

It is anybody's program. What it prints is read up to a limit, whatever it leaves behind is not
waited for, and one that is not done in time is killed; so is its process group, unless it has the
terminal.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from proreus.base.errors import ConfigError
from proreus.objects.codec import UNDECODABLE

MOST_OUTPUT_BYTES = 1 << 20
"""More is no ExecCredential: tokens have a few kilobytes, chains of certificates some more."""
_MOST_ERROR_BYTES = 2000
_OUTPUT_SECONDS = 0.25
"""Time limit for the rest of the output after the plugin has ended: a process that it started may
hold the pipe open.
"""
_KILLED_SECONDS = 1.0
_EARLY = timedelta(minutes=5)
"""Time before its expiry at which a token is replaced."""


class ExecCredentialStatus(Struct, frozen=True, rename="camel"):
    """The result of a plugin: a token, or a client certificate with its key, or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    @property
    def expires_soon(self) -> bool:
        """Whether it has an expiry that is at most five minutes away."""
        expiry = self.expiration_timestamp
        return expiry is not None and expiry <= datetime.now(UTC) + _EARLY


class _ExecCredential(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: ExecCredentialStatus | None = None


class _EnvironmentVariable(Struct, frozen=True):
    name: str
    value: str


class ExecPlugin(Struct, frozen=True, rename="camel"):
    """The ``exec`` of a kubeconfig's user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_EnvironmentVariable] | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"

    @classmethod
    def of(cls, config: Mapping[str, Any], folder: str) -> ExecPlugin:
        """Return the plugin of a kubeconfig in a folder; raises ``ConfigError``."""
        try:
            plugin = msgspec.convert(dict(config), cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"exec: {error}") from error
        # As for exec.Command a path is one with a separator; client-go finds it from the file.
        if os.sep in plugin.command:
            return msgspec.structs.replace(plugin, command=os.path.join(folder, plugin.command))
        return plugin

    async def run(self) -> ExecCredentialStatus:
        """Run the plugin; raises ``ConfigError`` if it returns no credential.

        A cancelled run kills it, and its process group unless it has the terminal.
        """
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if self.interactive_mode == "Always" and not has_terminal:
            raise _failed(f"{self.command} must be interactive, and standard input is no terminal")
        interactive = has_terminal and self.interactive_mode != "Never"
        info = {
            "apiVersion": self.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": interactive},
        }
        variables = {variable.name: variable.value for variable in self.env or ()}
        environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        loop = asyncio.get_running_loop()
        # A task of its own: cancelled in the middle, it would leave children of the plugin, and in
        # asyncio wait until they have ended.
        starting = loop.create_task(
            loop.subprocess_exec(
                lambda: _Run(loop),
                self.command,
                *(self.args or ()),
                env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                # A person who is asked for a password needs the terminal, which a session of its
                # own does not have.
                start_new_session=not interactive,
            )
        )
        output: bytes | None = None
        try:
            transport, run = await asyncio.shield(starting)
            output = await run.output
        except (OSError, ValueError) as error:
            raise _failed(f"{self.command} cannot be run: {error}") from error
        finally:
            await _end(starting, kill=output is None, group=not interactive)
        return self._credential(output, transport.get_returncode() or 0, run.errors)

    def _credential(self, output: bytes, code: int, errors: bytes) -> ExecCredentialStatus:
        if code:
            said = errors.decode("utf-8", "replace").strip()
            raise _failed(f"{self.command} ended with {code}" + (f": {said}" if said else ""))
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except UNDECODABLE as error:
            raise _failed(f"the output of {self.command} cannot be decoded: {error}") from error
        if answer.kind != "ExecCredential" or answer.api_version != self.api_version:
            raise _failed(
                f"{self.command} printed {answer.kind or 'no kind'} of "
                f"{answer.api_version or 'no apiVersion'}, not ExecCredential of {self.api_version}"
            )
        found = answer.status
        if found is None or not (found.token or found.client_certificate_data):
            raise _failed(f"{self.command} returned neither token nor certificate")
        if bool(found.client_certificate_data) != bool(found.client_key_data):
            raise _failed(f"{self.command} returned a certificate or a key without the other")
        return found


class _Run(asyncio.SubprocessProtocol):
    """The standard output as ``output``, once the process has ended, and how stderr began."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.output: asyncio.Future[bytes] = loop.create_future()
        self.errors = b""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._read = bytearray()
        self._read_all = False
        self._exited = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the output."""
        if fd == 2:
            self.errors += data[: _MOST_ERROR_BYTES - len(self.errors)]
        elif not self.output.done():
            self._read += data
            if len(self._read) > MOST_OUTPUT_BYTES:
                self.output.set_exception(_failed("its output is too long for a credential"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of the output."""
        if fd == 1:
            self._read_all = True
            if self._exited:
                self._finish()

    def process_exited(self) -> None:
        """Wait for the rest of the output, but not for long."""
        self._exited = True
        if self._read_all:
            self._finish()
        else:
            self._loop.call_later(_OUTPUT_SECONDS, self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process has ended, and that its pipes are closed."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _finish(self) -> None:
        if not self.output.done():
            self.output.set_result(bytes(self._read))


async def _end(
    starting: asyncio.Task[tuple[asyncio.SubprocessTransport, _Run]], *, kill: bool, group: bool
) -> None:
    """Close the pipes of a process; ``kill``: end it, with all that it has started."""
    await asyncio.wait((starting,))
    if starting.cancelled() or starting.exception() is not None:
        return
    transport, run = starting.result()
    if kill:
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(transport.get_pid(), signal.SIGKILL)
            else:
                transport.kill()
    transport.close()
    # The end of a process is reported to the loop, which must not be closed by then.
    await asyncio.wait((run.ended,), timeout=_KILLED_SECONDS)


def _failed(why: str) -> ConfigError:
    return ConfigError(f"exec: the credential plugin failed: {why}")
