"""KubeSchedulerConfiguration: read, parse, default, validate."""
