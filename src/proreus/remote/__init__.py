"""Plugins in processes of their own, called over HTTP (docs/out-of-process-plugins.md).

To a profile they are plugins like any other (``plugin``, ``node_points``, ``pod_points``). Behind
that are the plugin's descriptor (``descriptor``), nodes as columns, sent whole once and then by
changed rows (``columns``, ``snapshot``, ``process_sync``), results that are valid until their row
changes (``row_results``), and the process itself, which gets no requests while it does not respond
(``endpoint``, ``recovery``).
"""
