"""A load-watcher that answers ``Handle.http_get`` in tests."""

from __future__ import annotations

import json

from proreus.framework import ApiError

START = 1_700_000_000.0
WATCHER = {"watcherAddress": "http://watcher:2020/"}


class LoadWatcher:
    """Percentages by node, or lists of metrics; ``urls``: what was asked."""

    def __init__(self, **percent: float | list[dict]) -> None:
        self.percent, self.end, self.broken = percent, START, False
        self.urls: list[str] = []

    async def __call__(self, url: str, **_: object) -> bytes:
        self.urls.append(url)
        if self.broken:
            raise ApiError(503, "Unavailable", f"{url} answered 503")
        nodes = {
            name: {"metrics": value if isinstance(value, list) else [cpu(value)]}
            for name, value in self.percent.items()
        }
        window = {"duration": "15m", "start": self.end - 900, "end": self.end}
        return json.dumps({"window": window, "data": {"NodeMetricsMap": nodes}}).encode()


def cpu(value: float, operator: str = "AVG") -> dict:
    return {"type": "CPU", "operator": operator, "value": value}


def memory(value: float, operator: str = "AVG") -> dict:
    return {"type": "Memory", "operator": operator, "value": value}
