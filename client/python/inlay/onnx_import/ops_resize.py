"""resize: to come."""
