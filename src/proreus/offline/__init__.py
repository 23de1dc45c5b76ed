"""The very engine that schedules, without a cluster: an API in memory, a clock that is moved.

``evaluate`` answers recorded questions with it, tests and simulations stand on it.
"""
