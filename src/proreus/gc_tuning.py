"""Settings of the garbage collector for a scheduler's heap."""

from __future__ import annotations

import gc


def freeze_startup_heap() -> None:
    """Exempt all present objects from collection; call once all informers are synced."""
    # Most of these objects live as long as the process, and hardly any form reference cycles: full
    # collections would walk the whole cluster again and again, and block the event loop.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
