"""The scheduler finds every plugin of the folder by its entry point."""

import pkgutil
from importlib import import_module

import proreus.addons
from proreus.framework import Plugin
from proreus.process.loading.load import add_ons


def test_every_plugin_of_the_folder_is_registered():
    prefix = f"{proreus.addons.__name__}."
    modules = [one.name for one in pkgutil.walk_packages(proreus.addons.__path__, prefix)]
    classes = {
        value
        for module in modules
        for value in vars(import_module(module)).values()
        if isinstance(value, type) and issubclass(value, Plugin)
        if value.__module__.startswith(prefix)
    }
    bases = {base for one in classes for base in one.__mro__[1:]}
    assert {one.name for one in classes - bases} == set(add_ons())
