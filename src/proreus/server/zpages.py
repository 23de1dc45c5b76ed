"""/flagz and /statusz: the flags and the status of this process (KEP-4828, KEP-4827).

Plain text by default, and hard to parse on purpose (each process has a random delimiter); the
structured forms are served only to requests that name their exact version.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import yaml
from aiohttp import web

from proreus.base import logs
from proreus.base.clock import Clock, RealClock, rfc3339
from proreus.server.responses import json_body, plain, status_body

Kind = Literal["Flagz", "Statusz"]

_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
_GROUP = "config.k8s.io"
_ACCEPTED = "application/json, application/yaml, text/plain"


@dataclass
class ZPages:
    """Both pages of one process."""

    component: str
    flags: Mapping[str, str]
    binary_version: str
    emulation_version: str
    paths: Sequence[str]
    clock: Clock = field(default_factory=RealClock)
    delimiter: str = field(default_factory=lambda: random.choice((":", ": ", "=", " ")))

    def __post_init__(self) -> None:
        self._started, self._started_monotonic = self.clock.now(), self.clock.monotonic()

    def flagz(self, accept: str) -> web.Response:
        """Return the response to /flagz, in the form that the Accept header names."""
        flags = dict(sorted(self.flags.items()))
        return self._page("Flagz", accept, flags, {"flags": flags})

    def statusz(self, accept: str) -> web.Response:
        """Return the response to /statusz, in the form that the Accept header names."""
        up = int(self.clock.monotonic() - self._started_monotonic)
        started = datetime.fromtimestamp(self._started, UTC)
        runtime = f"{platform.python_implementation()} {platform.python_version()}"
        lines = {
            "Started": started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            "Up": f"{up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
            "Go version": runtime,  # the page's key, with our interpreter's version
            "Binary version": self.binary_version,
            "Emulation version": self.emulation_version,
            "Paths": " ".join(sorted(self.paths)),
        }
        fields = {
            "startTime": rfc3339(self._started),
            "uptimeSeconds": up,
            "goVersion": runtime,
            "binaryVersion": self.binary_version,
            "emulationVersion": self.emulation_version,
            "paths": sorted(self.paths),
        }
        return self._page("Statusz", accept, lines, fields)

    def _page(
        self, kind: Kind, accept: str, lines: Mapping[str, str], fields: Mapping[str, Any]
    ) -> web.Response:
        for media_type, parameters in _accepted(accept):
            if media_type in ("*/*", "text/*", "text/plain"):
                return self._text(kind, lines)
            if media_type in ("application/json", "application/yaml"):
                version = _version_asked(parameters, kind)
                if version:
                    return self._structured(kind, version, media_type, fields)
        return status_body(
            406,
            "NotAcceptable",
            f"only the following media types are accepted: {_ACCEPTED}",
        )

    def _text(self, kind: Kind, lines: Mapping[str, str]) -> web.Response:
        gap = "\n" if kind == "Statusz" else ""
        body = "".join(f"{name}{self.delimiter}{value}\n" for name, value in lines.items())
        return plain(f"\n{self.component} {kind.lower()}\n{_WARNING}\n{gap}{body}")

    def _structured(
        self, kind: Kind, version: str, media_type: str, fields: Mapping[str, Any]
    ) -> web.Response:
        content = {
            "kind": kind,
            "apiVersion": f"{_GROUP}/{version}",
            "metadata": {"name": self.component},
            **fields,
        }
        if media_type == "application/yaml":
            text = yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False)
            response = web.Response(text=text, content_type="application/yaml")
        else:
            response = json_body(content)
        if version == "v1alpha1":
            text = f"{_GROUP}/v1alpha1 {kind} is deprecated; use {_GROUP}/v1beta1 {kind}"
            response.headers["Warning"] = f'299 - "{text}"'
        return response


def _accepted(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the media types of an Accept header with their parameters, best first."""
    ranked = []
    for item in (accept or "*/*").split(","):
        media_type, *rest = (part.strip() for part in item.split(";"))
        parameters = {key: value for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        ranked.append((-quality, media_type.lower(), parameters))
    ranked.sort(key=lambda entry: entry[0])
    return [(media_type, parameters) for _, media_type, parameters in ranked]


def _version_asked(parameters: Mapping[str, str], kind: Kind) -> str:
    if parameters.get("g") != _GROUP or parameters.get("as") != kind:
        return ""
    version = parameters.get("v", "")
    return version if version in ("v1beta1", "v1alpha1") else ""


async def set_verbosity(request: web.BaseRequest) -> web.Response:
    """Set the verbosity of logs to the body of a PUT."""
    if request.method != "PUT":
        return plain("unsupported http method\n", status=406)
    text = (await request.text()).strip()
    try:
        logs.set_verbosity(int(text))
    except ValueError:
        return plain(
            f'failed to set klog.logging.verbosity {text}: "{text}" is not a whole number\n',
            status=400,
        )
    return plain(f"successfully set klog.logging.verbosity to {text}")


def flags_index(_: web.BaseRequest) -> web.Response:
    """List the flags that can be changed."""
    return plain("flags that can be changed by PUT:\n/debug/flags/v\n")
