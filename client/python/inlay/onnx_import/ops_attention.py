"""attention: to come."""
