"""HFS9xx: hfspeed's own checks and comments."""
