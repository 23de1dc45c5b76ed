"""The limit of open files of this process."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one, as Go's runtime does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a hard limit that they do not accept as a soft one.
    with suppress(ValueError, OSError):
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
