"""HFS7xx: modeling files that live on the Hub."""
