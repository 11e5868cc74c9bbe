"""signal: to come."""
