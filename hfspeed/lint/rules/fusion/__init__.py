"""HFS2xx: what keeps projections, activations and norms from becoming one kernel."""
