"""HFS3xx: mixtures of experts."""
