"""JSON merge patches (RFC 7386): of plain data, as a JSON parser makes it."""

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return what a patch makes of a value: null removes, what is no object replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
