"""Files that matplotlib draws: whether it can, asked before the work that they show."""

from __future__ import annotations

from pathlib import Path

from proreus.base.errors import ConfigError

FORMATS = (".svg", ".png")


def check_picture(option: str, path: Path) -> None:
    """Raise ``ConfigError`` if drawing would fail: unknown format, or no matplotlib.

    ``option``: the one that names the file, for the error.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"{option} {path}: must end in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"{option} needs matplotlib: install proreus with the extra bench"
        ) from None
