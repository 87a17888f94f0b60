"""HFS5xx: names and values in checkpoints."""
