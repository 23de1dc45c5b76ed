"""``proreus run`` as a subcommand, for ``--help`` and for callers of commands through click."""

from proreus.process.cli.go_command import GoCommand
from proreus.process.cli.go_flags import ParsedFlags
from proreus.process.cli.run_flags import FLAGS


def _run(values: ParsedFlags) -> int:
    from proreus.process.cli.run import run  # most of proreus, which --help does not need

    return run(values)


command = GoCommand("run", FLAGS, _run, "Schedule pods on a cluster, in place of kube-scheduler.")
