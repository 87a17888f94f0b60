"""HFS4xx: ranks and stages."""
