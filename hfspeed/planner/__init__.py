"""From a name to a plan: load, build, decide, shrink, prove, remember."""
