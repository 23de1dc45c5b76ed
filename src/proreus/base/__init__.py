"""Every room may use these: errors, clock, versions, feature gates, logs, metrics."""
