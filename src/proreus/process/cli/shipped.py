"""Files that come with the code: definitions of custom resources, examples.

The wheel has them in ``proreus/shipped`` (pyproject.toml), a checkout in their own folders.
"""

from __future__ import annotations

from pathlib import Path

import proreus
from proreus.base.errors import ConfigError

_PACKAGE = Path(proreus.__file__).parent


def shipped_folder(name: str) -> Path:
    """Return a folder by its path in the repository, such as ``deploy/crds``."""
    for root in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (root / name).is_dir():
            return root / name
    raise ConfigError(f"this installation of proreus has no {name}")
