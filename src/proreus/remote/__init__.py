"""Plugins in processes of their own, asked over HTTP (docs/out-of-process-plugins.md).

To a profile they are plugins like any other (``plugin``, ``node_points``, ``pod_points``). Here is
what that takes: a descriptor that says what they want (``descriptor``), nodes as columns that are
sent once and then by what changed (``columns``, ``snapshot``), answers that hold until a row
changes (``known``), and a process that is left alone while it does not answer (``endpoint``).
"""
