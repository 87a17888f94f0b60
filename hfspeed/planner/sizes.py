"""The usual names of sizes, and what each becomes: only first candidates, kept if the model still runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "word_embed_proj_dim", "embedding_size", "model_dim")
INNER = (
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "d_ff",
    "dim_ff",
    "dff",
    "d_inner",
    "ffn_hidden_size",
    "feed_forward_size",
)
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads", "num_global_key_value_heads")
HEAD_SIZE = ("head_dim", "dim_head", "d_head", "attention_head_dim", "kv_channels", "qk_nope_head_dim")
ROTARY = ("rotary_dim", "rotary_ndims")
FRACTION = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rope_pct")
DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
VOCABULARY = ("vocab_size", "padded_vocab_size")
RANKS = {"q_lora_rank": 24, "kv_lora_rank": 40}

NEW_HEADS, NEW_KEY_HEADS, NEW_INNER, NEW_VOCABULARY = 4, 2, 112, 144


def standard_sizes(values: Mapping[str, Any], ranks: int = 2) -> dict[str, Any]:
    """New values for the sizes in ``values`` that have usual names; with heads for so many ranks.

    Widths are multiples of 16, so that 1, 2 and 4 ranks divide them, and pairwise distinct where the author's are.
    """
    sizes = {**_heads(values, ranks), **_inner(values, ranks)}
    for name, value in _present(values, VOCABULARY):
        sizes[name] = fitting(value, NEW_VOCABULARY, ranks, 16)
    for name, value in RANKS.items():
        if _is_size(values.get(name)):
            sizes[name] = min(value, values[name])
    return sizes


def override_sizes(
    overrides: Mapping[int, Mapping[str, Any]], values: Mapping[str, Any], sizes: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """What single layers override, in the proportion that it has to the value of all."""

    def scaled(name: str, value: Any) -> Any:
        if name not in sizes or not _is_size(value) or not _is_size(values.get(name)):
            return value
        return max(1, value * sizes[name] // values[name])

    return {layer: {name: scaled(name, value) for name, value in own.items()} for layer, own in overrides.items()}


def fitting(old: int, least: int, ranks: int, unit: int = 1) -> int:
    """A new size for ``old``, at least ``least`` where that is: every number up to ``ranks`` that divides ``old`` does.

    It is a multiple of ``unit`` where it is less than ``old``.
    """
    return min(old, _multiple(old, least, ranks, unit))


def _multiple(old: int, least: int, ranks: int, unit: int) -> int:
    needed = math.lcm(unit, *(number for number in range(1, ranks + 1) if old % number == 0))
    return needed * math.ceil(least / needed)


def _heads(values: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """Width, heads, key heads and head size, which hang together; with heads for so many ranks, where there are."""
    width = next((value for _, value in _present(values, HIDDEN)), None)
    heads = next((value for _, value in _present(values, HEADS)), None)
    if width is None or heads is None:
        return {}
    sized = next(iter(_present(values, HEAD_SIZE)), None)
    old = sized[1] if sized else width // heads
    times = max(1, ranks // NEW_KEY_HEADS)
    fewer = {name: value for name, value in _present(values, KEY_HEADS) if value != heads}
    shared = {name: fitting(value, NEW_KEY_HEADS * times, ranks) for name, value in fewer.items()}
    new_heads = fitting(heads, NEW_HEADS * times, ranks, max(shared.values(), default=1))
    if any(new_heads % count for count in shared.values()):
        new_heads = min(heads, NEW_HEADS * times)
        shared = {name: min(value, NEW_KEY_HEADS * times) for name, value in fewer.items()}
    new = _head_size(values)
    # a width that heads do not make up must not come to look as if they did
    new_width = new * new_heads if old * heads == width else 80
    sizes: dict[str, Any] = {name: new_width for name, value in _present(values, HIDDEN) if value == width}
    sizes |= {name: new_heads for name, value in _present(values, HEADS) if value == heads}
    sizes |= {name: shared.get(name, new_heads) for name, _ in _present(values, KEY_HEADS)}
    for name, value in values.items():
        if _is_size(value) and (name in HEAD_SIZE or name.endswith("head_dim") or name in ROTARY):
            sizes[name] = max(2, value * new // old // 2 * 2)
    return sizes


def _head_size(values: Mapping[str, Any]) -> int:
    """The smallest size from 16 on of which every rotary fraction is even."""
    fractions = list(_fractions(values))
    for size in range(16, 64, 4):
        parts = [size * fraction for fraction in fractions]
        if all(part == int(part) and int(part) % 2 == 0 for part in parts):
            return size
    return 16


def _fractions(values: Mapping[str, Any]) -> Iterator[float]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _fractions(value)
        elif name in FRACTION and isinstance(value, float):
            yield value


def _inner(values: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for name in INNER:
        value: Any = values.get(name)
        if _is_size(value):
            sizes[name] = _multiple(value, NEW_INNER, ranks, 16)
        elif isinstance(value, list) and value and all(_is_size(entry) for entry in value):
            widths = sorted(set(value))
            sizes[name] = [NEW_INNER + 16 * widths.index(entry) for entry in value]
    return sizes


def _present(values: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The names that are there, with their sizes."""
    for name in names:
        value: Any = values.get(name)
        if _is_size(value):
            yield name, value


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


USUAL = 2048
"""How long prompts may be where a configuration does not say."""


def context(config: Any) -> int:
    """The longest prompt that a model says it takes."""
    text = config.get_text_config(decoder=True)
    named = (getattr(text, name, None) for name in POSITIONS)
    return max((value for value in named if isinstance(value, int)), default=USUAL)


def longest(config: Any) -> int:
    """A first position so late that whatever depends on length has happened."""
    text = config.get_text_config(decoder=True)
    return max(int(getattr(text, "max_position_embeddings", None) or 0), 1 << 17)
