"""HFS001: the file itself."""
