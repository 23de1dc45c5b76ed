"""NumPy without what a start does not need: half the time that importing it takes.

What is left out is for people and type checkers, and for products of large matrices.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_DOCSTRINGS = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""They add docstrings to what is implemented in C, and do nothing else; NumPy has them apart to be
left out likewise."""

_TYPES = "numpy._typing"
"""What is behind ``numpy.typing``. NumPy's own modules use it in annotations alone."""

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "NUMPY_MADVISE_HUGEPAGE": "0",
    "OPENBLAS_MAIN_FREE": "1",
    "GOTOBLAS_MAIN_FREE": "1",
}
"""Environment variables that are read at the import.

OpenBLAS begins with a thread for each core, which turn in a loop for 50 ms before they sleep. A
start has other uses for the cores, and a scheduler multiplies no large matrices.

For an array of four megabytes NumPy asks the kernel for large pages. It never takes that back, so
the memory goes on to be allocated by 2 MiB once the array is gone and small objects are there.

The last two NumPy would set itself, one or both by its version, and take away again.
"""


def set_environment() -> None:
    """Set the variables that NumPy reads when it is imported, unless they are set.

    Call this before there are other threads: one that looks up a name reads the environment, and
    may crash while another changes it. So the variables stay, for the processes that we start as
    well.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def import_numpy() -> None:
    """Import NumPy, if it is yet to be imported; ``set_environment`` has been called before.

    ``numpy.typing`` can be imported afterwards, and is complete.
    """
    if "numpy" in sys.modules:
        return
    for name in _DOCSTRINGS:
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules[_TYPES] = _Annotations(_TYPES)
    try:
        import_module("numpy")
    finally:
        del sys.modules[_TYPES]


class _Annotations(ModuleType):
    """In the place of a module of types: has every name, as something to be used in annotations."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return list
