"""NumPy without the docstrings of what it implements in C."""

import sys
from types import ModuleType

_MODULES = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""They add docstrings, and do nothing else; NumPy has them apart to be left out likewise."""


def leave_out() -> None:
    """Leave out those docstrings, if NumPy is yet to be imported: a quarter of what that takes."""
    if "numpy" not in sys.modules:
        for name in _MODULES:
            sys.modules.setdefault(name, ModuleType(name))
