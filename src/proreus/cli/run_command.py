"""``proreus run`` as a subcommand: for ``--help``, and for those who run commands through click."""

from proreus.cli.go_command import GoCommand
from proreus.cli.run import run
from proreus.cli.run_flags import FLAGS

command = GoCommand("run", FLAGS, run, "Schedule pods on a cluster, in kube-scheduler's stead.")
