"""What was decided about a model, as one page for people and as a picture for a README."""
