"""The demo: real weights, an annotated modeling file, vLLM's server, one question."""
