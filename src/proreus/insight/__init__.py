"""Users ask here about decisions: the record, explanations, dry runs, dashboard, snapshots."""
