"""The kubeconfig that commands use by default."""

from __future__ import annotations

import os
from pathlib import Path


def default_kubeconfig() -> str:
    """Return the kubeconfig that kubectl would use; "" if there is none."""
    if given := os.environ.get("KUBECONFIG"):
        return given
    path = Path.home() / ".kube" / "config"
    return str(path) if path.is_file() else ""
