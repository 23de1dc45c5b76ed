"""``proreus bench``: workloads in scheduler_perf's language, run against a real apiserver.

``operations`` and ``workloads`` parse the files, ``templates`` and ``objects`` make the API
objects, ``api`` sends them and ``pods`` watches the pods. ``executor`` runs one pass of a workload;
``pod_creation`` and ``devices`` are its larger operations. ``control_plane`` and ``schedulers`` are
the processes under test, ``measures`` takes the figures, ``comparison`` runs the rounds, ``report``
and ``plot`` show the results.

Nothing here depends on how proreus schedules: it is one more process, measured like the others.
"""
