"""quantize: to come."""
