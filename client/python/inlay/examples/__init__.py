"""Examples that run as they are: `python -m inlay.examples.minilm`."""
