"""What is told of decisions: the record, explanations, dry runs, the dashboard, shadow mode."""
