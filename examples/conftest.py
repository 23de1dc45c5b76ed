"""Fixtures for the tests of the examples: the plugin and configuration of the test's folder."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from proreus.framework import Plugin

# As in tests/conftest.py: on Python 3.11, asking for "the" event loop must not create one.
asyncio.set_event_loop(None)


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Path:
    """The example's configuration."""
    return request.path.parent / "config.yaml"


@pytest.fixture
def module(request: pytest.FixtureRequest) -> ModuleType:
    """The module of the example's plugin."""
    (file,) = (request.path.parent / "plugins").glob("*.py")
    name = f"proreus_example_{file.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def plugin(module: ModuleType) -> type[Plugin]:
    """The example's plugin."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    (found,) = (
        value
        for value in classes
        if issubclass(value, Plugin) and value.__module__ == module.__name__
    )
    return found
