"""``proreus bench``: workloads in scheduler_perf's language, run against a real apiserver.

``operations`` and ``workloads`` are the language, ``templates`` and ``objects`` make what it
speaks of, ``api`` sends it, ``pods`` sees what becomes of it. ``executor`` is one pass through a
workload, ``pod_creation`` and ``devices`` are its larger parts. ``control_plane`` and
``schedulers`` are the processes under test, ``measures`` what is taken of them, ``comparison`` the
rounds, ``report`` and ``plot`` what people get to see.

Nothing here knows how proreus decides: it is one more process, asked the same way as the others.
"""
