"""HFS8xx: the model as a whole, and its numbers."""
