"""control: to come."""
