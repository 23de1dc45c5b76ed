"""JSON merge patches (RFC 7386) of plain data."""

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the patched value: null removes a field, a non-object replaces the value."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
