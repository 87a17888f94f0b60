"""The parallel axes, one file each: how values are split over ranks, and where layers are cut into stages."""
