"""sequence: to come."""
