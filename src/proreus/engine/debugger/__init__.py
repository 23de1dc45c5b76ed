"""Compares the scheduler's state with the apiserver, repairs differences, and dumps the state.

    debugger         a round: compare, wait, compare what differed again, report, heal, in slices
                     so that none holds the event loop for long; and the dump on SIGUSR2
    cache_comparer   cache, columns and queue against the informers' stores
    (client/watching/store_comparer: the stores against fresh lists)

kube-scheduler's ``backend/cache/debugger``, which compares and dumps on SIGUSR2, and repairs
nothing.
"""
