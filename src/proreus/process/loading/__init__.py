"""Finds, imports and checks out-of-tree plugins.

They come from entry points of installed packages, ``--plugin module:Class`` and ``--plugin-dir``.
``load`` is called at start-up and whenever plugin files change. It raises nothing: a plugin that
cannot be used is rejected with its place and the reason, and is an error only if a configuration
names it. Ordering and calling plugins is the task of ``runtime``.
"""
