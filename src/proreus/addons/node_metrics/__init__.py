"""What nodes really use: what the plugins that look at it share.

``metrics`` is what is read, ``providers`` where from, ``reader`` reads it in the background and
knows its age; ``recent_pods`` are those that it does not show yet, ``pod_amounts`` what pods ask
for.
"""
