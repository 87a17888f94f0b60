"""One file per kind of op: the plan's op, built from vLLM's own layers."""
