"""The kubeconfig of commands: that of --kubeconfig, else kubectl's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proreus.client.credentials.credentials import Credentials


def default_kubeconfig() -> str:
    """Return the kubeconfig that kubectl would use; "" if there is none."""
    if given := os.environ.get("KUBECONFIG"):
        return given
    path = Path.home() / ".kube" / "config"
    return str(path) if path.is_file() else ""


async def load_credentials(kubeconfig: str, context: str | None, server: str = "") -> Credentials:
    """Return the credentials of a command; raises ``ConfigError`` with what to do."""
    from proreus.client.credentials import credential_loading

    try:
        return await credential_loading.load(
            kubeconfig or default_kubeconfig(), server, context=context
        )
    except credential_loading.NoKubeconfig as error:
        given = "--kubeconfig" if kubeconfig else "KUBECONFIG"
        error.remedy = f"name a kubeconfig that is there by {given}"
        if not (kubeconfig or os.environ.get("KUBECONFIG")):
            error.remedy = "name a kubeconfig by --kubeconfig or KUBECONFIG"
        raise
