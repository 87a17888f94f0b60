"""HFS9xx: the deep check itself."""
