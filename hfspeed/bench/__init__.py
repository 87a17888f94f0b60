"""Several ways to serve one model, side by side on one machine: native, hfspeed, hfspeed without fusions, the peer."""
