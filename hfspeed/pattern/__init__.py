"""How a fusion is written: what it matches, what must hold besides, and what takes its place."""
