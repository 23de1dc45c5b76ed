"""Addresses as text."""

from __future__ import annotations


def authority(host: str, port: int | str | None) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
