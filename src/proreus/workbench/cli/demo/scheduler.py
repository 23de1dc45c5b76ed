"""The demo's scheduler: ``proreus run`` in a process that ends when the demo does.

The demo holds the other end of standard input, and closes it when it ends, even by SIGKILL. Then
the scheduler stops, and the demo's folder is deleted. SIGHUP would not do: it reloads.
"""

import os
import shutil
import signal
import sys
import threading

from proreus.process.cli import main
from proreus.process.stopping import end_within_time

_STOP_SECONDS = 10.0


def _end_with_the_demo(folder: str) -> None:
    os.read(sys.stdin.fileno(), 1)
    end_within_time(_STOP_SECONDS, why="the demo has ended")
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_demo, args=sys.argv[1:2], daemon=True).start()
    main(["run", *sys.argv[2:]])
