"""Objects of YAML files applied to a store, as ``kubectl apply`` does through an apiserver.

Unlike kubectl, it applies ``status`` too, so that a file can give a node extended resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proreus.base import yaml_limits
from proreus.base.errors import ConfigError
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.store import Store

JsonObject = dict[str, Any]


def apply_file(store: Store, path: Path) -> list[str]:
    """Create each object of a file, or merge it into the existing one; return their ``kind/name``.

    Raises ``ConfigError`` that names the document; the documents before it stay applied.
    """
    applied = []
    for number, obj in enumerate(_read(path), 1):
        try:
            applied.append(_apply(store, obj))
        except (StatusError, ConfigError) as error:
            raise ConfigError(f"{path}, document {number}: {error}") from error
    return applied


def _read(path: Path) -> Iterator[Any]:
    try:
        content = path.read_bytes()
        yaml_limits.check(content)
        for document in yaml.safe_load_all(content):
            if isinstance(document, dict) and document.get("kind") == "List":
                yield from document.get("items") or ()
            elif document is not None:
                yield document
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error


def _apply(store: Store, obj: Any) -> str:
    served = _resource_of(store, obj)
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise ConfigError("metadata.name: Required value")
    namespace = str(metadata.get("namespace") or "default") if served.namespaced else ""
    if store.collection(served).get(name, namespace) is None:
        store.create(served, obj, namespace, keep_status=True)
    else:
        store.patch(served, name, obj, namespace)
        if served.status and "status" in obj:
            status = {"status": obj["status"]}
            store.patch(served, name, status, namespace, subresource="status")
    return f"{served.kind.lower()}/{name}"


def _resource_of(store: Store, obj: Any) -> ServedResource:
    if not isinstance(obj, dict):
        raise ConfigError(f"an object must be a mapping, not {type(obj).__name__}")
    version, kind = obj.get("apiVersion"), obj.get("kind")
    for served in store.resources:
        if (served.api_version, served.kind) == (version, kind) and not served.read_only:
            return served
    raise ConfigError(f"apiVersion {version!r}, kind {kind!r}: no such resource is served")
