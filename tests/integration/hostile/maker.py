"""Makes hostile objects in a process of its own, so that its memory is not measured with ours.

    python -m hostile.maker KIND SEED SCALE COUNT

writes COUNT pickled ``Made`` to its standard output. ``made_elsewhere`` starts that and reads them.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from .objects import Objects


@dataclass(frozen=True)
class Made:
    """The JSON of an object, and the shape that it was given."""

    shape: str
    json: bytes


def made_elsewhere(kind: str, seed: int, scale: float, count: int) -> Iterator[Made]:
    """Yield objects of one kind that another process makes, as they are asked for."""
    words = [sys.executable, "-m", "hostile.maker", kind, str(seed), str(scale), str(count)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(count):
            yield pickle.load(process.stdout)


def main(kind: str, seed: str, scale: str, count: str) -> None:
    """Write the objects; returns early when nobody reads them any more."""
    objects = Objects(kind, int(seed), float(scale))
    try:
        for number in range(int(count)):
            text = objects.make(number)
            sys.stdout.buffer.write(pickle.dumps(Made(objects.shape, text)))
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    # Pickled by the name under which the reader imports it.
    from hostile.maker import main as run

    run(*sys.argv[1:])
