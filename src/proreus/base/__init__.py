"""What every room may use: errors, clock, versions, feature gates, logs, metrics."""
