"""The ``proreus`` command: ``main`` and ``kubectl_main``."""

from __future__ import annotations

import sys

from proreus import gc_tuning


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:
        # Before the imports, which are most of a start.
        gc_tuning.collect_rarely_at_start()
        # Without the other commands and click, which would be a twentieth of a start.
        from proreus.cli import run

        code = run.main(given[1:])
        if code is not None:
            sys.exit(code)
    from proreus.cli.commands import call, proreus_command

    sys.exit(call(proreus_command, given, "proreus"))


def kubectl_main(arguments: list[str] | None = None) -> None:
    """Run ``kubectl proreus``, a plugin of kubectl."""
    from proreus.cli.commands import call
    from proreus.cli.explain import kubectl_command

    sys.exit(call(kubectl_command, arguments, "kubectl proreus"))
