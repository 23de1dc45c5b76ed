"""One attempt to schedule a pod, from PreFilter to the binding (schedule_one.go)."""
