"""From a plan to a readable, importable module."""

from hfspeed.emit.cache import cache_root, digest, emitted, ensure_path, stem
from hfspeed.emit.render import render

__all__ = ["cache_root", "digest", "emitted", "ensure_path", "render", "stem"]
