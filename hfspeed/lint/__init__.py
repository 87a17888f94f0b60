"""Tells, at its line, what keeps a modeling file from being served fast, or at all."""
