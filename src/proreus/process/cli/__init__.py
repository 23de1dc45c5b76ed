"""The ``proreus`` command: ``main`` and ``kubectl_main``."""

from __future__ import annotations

import os
import sys

from proreus.process import gc_tuning


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its exit code."""
    open_standard_descriptors()
    # NumPy reads these when it is imported. A thread of OpenBLAS for each core would turn in a loop
    # for 50 ms, and nothing here multiplies large matrices. Pages of 2 MiB, which NumPy asks for,
    # stay that large when small objects follow.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"]:
        gc_tuning.collect_rarely_at_start()
        from proreus.process.cli import run

        code = run.main(given[1:])
        if code is not None:
            sys.exit(code)
    from proreus.process.cli.commands import call, proreus_command

    sys.exit(call(proreus_command, given, "proreus"))


def kubectl_main(arguments: list[str] | None = None) -> None:
    """Run ``kubectl proreus``, a plugin of kubectl."""
    open_standard_descriptors()
    from proreus.process.cli.commands import call
    from proreus.process.cli.explain import kubectl_command

    sys.exit(call(kubectl_command, arguments, "kubectl proreus"))


def open_standard_descriptors() -> None:
    """Open /dev/null in the place of standard descriptors that are closed.

    Otherwise the next file or socket gets their number, and what is written to standard error is
    written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            file = open(os.devnull, "w" if number else "r")  # noqa: SIM115
            setattr(sys, name, file)
            setattr(sys, f"__{name}__", file)
