"""HFS1xx: the attention interface."""
