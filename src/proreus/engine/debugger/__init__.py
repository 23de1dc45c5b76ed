"""Compares what the scheduler believes with the apiserver, repairs differences, and dumps both.

    debugger         a round: compare, wait, compare what differed again, report, heal
    cache_comparer   cache, columns and queue against the informers' stores
    (client/store_comparer: the stores against fresh lists)
    dumper           nodes and queue into the log, on SIGUSR2
    time_slices      so that none of it holds the event loop for long

kube-scheduler's ``backend/cache/debugger``, which compares and dumps on SIGUSR2, and repairs
nothing.
"""
