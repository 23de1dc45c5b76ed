"""How the garbage collector is to treat a scheduler's heap."""

from __future__ import annotations

import gc


def freeze_startup_heap() -> None:
    """Call once the first whole state of the cluster is in memory.

    What is known by then mostly stays, and hardly anything in here forms cycles: the collector need
    not walk over the whole cluster again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
