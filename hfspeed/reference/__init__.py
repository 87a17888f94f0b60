"""A plan built in plain torch, on simulated ranks: the oracle that every other builder is measured against."""
