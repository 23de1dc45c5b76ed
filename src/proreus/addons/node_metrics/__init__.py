"""The real use of nodes, for the plugins that score or filter by it.

``metrics`` has the values, ``providers`` their sources; ``reader`` reads them in the background and
knows their age. ``recent_pods`` has the pods that metrics do not show yet.
"""
