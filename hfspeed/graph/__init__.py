"""The forward as dataflow: recorded runs, their graphs, and what reaches what."""
