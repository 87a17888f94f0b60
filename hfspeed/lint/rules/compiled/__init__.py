"""HFS6xx: what a compiled forward cannot hold."""
