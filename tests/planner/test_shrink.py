"""Small configurations of the same shape: every dense family, and code with names nobody uses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from hfspeed.errors import SubjectError
from hfspeed.planner.build import build, randomise, size_of
from hfspeed.planner.load import Subject, load
from hfspeed.planner.remake import remake, spots
from hfspeed.planner.shrink import shrink
from hfspeed.planner.sizes import standard_sizes
from hfspeed.planner.trial import depth_of, inputs

sys.path.insert(0, str(Path(__file__).parent))
from sized_models import SizedConfig, SizedModel

QUICK = ("codegen", "cohere2", "gemma3n_text", "gemma4_text", "gpt_neo", "llama", "minicpm3", "phi3")
DENSE = (
    "apertus", "arcee", "bitnet", "bloom", "cohere", "cpmant", "ctrl", "cwm", "diffllama", "emu3", "ernie4_5",
    "exaone4", "falcon", "fuyu", "gemma", "gemma2", "gemma3_text", "gemma4", "gemma4_unified",
    "gemma4_unified_text", "glm", "glm4", "gptj", "granite", "granite_swa", "helium", "hrm_text", "hyperclovax",
    "jais2", "ministral3", "mistral", "mllama", "modernbert-decoder", "moshi", "nanochat", "olmo", "olmo2", "olmo3",
    "openai-gpt", "opt", "persimmon", "phi", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm", "starcoder2",
    "vaultgemma", "youtu",
)  # fmt: skip
INCOMPLETE = ("hunyuan_v1_dense", "ministral", "nemotron")
"""Their default configurations have no head size; real ones do."""
ODD = Path(__file__).with_name("odd_models.py")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("family", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in DENSE)])
def test_every_dense_family_runs_small_in_float64(family: str) -> None:
    _check(load(family), layers=3)


@pytest.mark.parametrize("family", INCOMPLETE)
def test_a_head_size_completes_the_default(family: str) -> None:
    subject = load(family)
    subject.config.head_dim = 128
    subject.config.num_key_value_heads = subject.config.num_key_value_heads or subject.config.num_attention_heads
    _check(subject, layers=2)


def _check(subject: Subject, *, layers: int) -> Any:
    before = subject.config.to_dict()
    small = shrink(subject.config, subject.model_class, layers=layers, windows=frozenset({4096, 512, 128}))
    assert subject.config.to_dict() == before, "the caller's configuration stays as it was"
    assert type(small) is type(subject.config)
    model = build(subject.model_class, small, device="cpu", dtype=torch.float64)
    randomise(model)
    with torch.no_grad():
        logits = model(**inputs(model, "cpu")).logits
    assert torch.isfinite(logits).all()
    assert size_of(model) < 400_000
    assert depth_of(model) <= layers
    return small


def _floats_and_flags(config: Any) -> dict[Any, Any]:
    return {spot: value for spot, value in spots(config) if isinstance(value, (float, bool, str))}


@pytest.mark.parametrize("family", QUICK)
def test_floats_flags_and_words_stay(family: str) -> None:
    subject = load(family)
    small = shrink(subject.config, subject.model_class, layers=3)
    assert _floats_and_flags(small) == _floats_and_flags(subject.config)


def test_the_kind_of_key_heads_stays() -> None:
    for heads, kind in ((32, 4), (8, 2), (1, 1)):
        config = LlamaConfig(num_key_value_heads=heads)
        assert shrink(config, LlamaForCausalLM, layers=2).num_key_value_heads == kind


def test_sizes_divide_over_four_ranks_and_differ() -> None:
    small = shrink(LlamaConfig(num_key_value_heads=8), LlamaForCausalLM, layers=2)
    sizes = [small.hidden_size, small.intermediate_size, small.vocab_size]
    assert all(size % 16 == 0 for size in sizes)
    assert len(set(sizes)) == 3
    assert small.num_attention_heads * small.head_dim == small.hidden_size


def test_whatever_number_of_ranks_can_share_the_large_one_can_share_the_small_one() -> None:
    sizes = {"hidden_size": 224, "num_attention_heads": 14, "num_key_value_heads": 7, "head_dim": 16}
    seven = standard_sizes({**sizes, "intermediate_size": 11200, "vocab_size": 7000}, 7)
    assert (seven["num_attention_heads"], seven["num_key_value_heads"]) == (14, 7)
    assert seven["intermediate_size"] % 7 == seven["vocab_size"] % 7 == 0
    two = standard_sizes({**sizes, "intermediate_size": 11200, "vocab_size": 7000}, 2)
    assert (two["num_attention_heads"], two["num_key_value_heads"], two["intermediate_size"]) == (4, 2, 112)
    three = standard_sizes({"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, 3)
    assert three["num_attention_heads"] % 3 == three["intermediate_size"] % 3 == 0


def test_a_width_that_heads_do_not_make_up_stays_so() -> None:
    small = shrink(Gemma2Config(), Gemma2ForCausalLM, layers=2)
    assert small.num_attention_heads * small.head_dim != small.hidden_size


def test_windows_act_on_short_prompts_and_lists_are_cut() -> None:
    config = Gemma2Config()
    small = shrink(config, Gemma2ForCausalLM, layers=3, windows=frozenset({4096}))
    assert small.sliding_window == 8
    assert small.layer_types == config.layer_types[:3]
    assert small.query_pre_attn_scalar == config.query_pre_attn_scalar


def test_a_position_limit_that_equals_a_window_is_no_window() -> None:
    config = Gemma2Config(max_position_embeddings=4096)
    small = shrink(config, Gemma2ForCausalLM, layers=2, windows=frozenset({4096}))
    assert (small.max_position_embeddings, small.sliding_window) == (4096, 8)


def test_two_windows_stay_two() -> None:
    subject = load("modernbert-decoder")
    small = shrink(subject.config, subject.model_class, layers=3, windows=frozenset({128, 64}))
    assert small.local_attention != small.sliding_window


def test_values_of_single_layers_keep_their_proportion() -> None:
    subject = load("gemma4_text")
    small = shrink(subject.config, subject.model_class, layers=6)
    layers = build(subject.model_class, small).model.layers
    sizes = [layer.self_attn.q_norm.weight.shape[0] for layer in layers]
    assert sizes == [16, 16, 16, 16, 16, 32]


def test_special_tokens_fit_the_vocabulary() -> None:
    config = LlamaConfig(pad_token_id=31999, eos_token_id=[31998, 2])
    small = shrink(config, LlamaForCausalLM, layers=2)
    assert small.pad_token_id < small.vocab_size
    assert max(small.eos_token_id) < small.vocab_size


def test_shallow_models_keep_their_depth_and_twice_is_the_same() -> None:
    small = shrink(LlamaConfig(num_hidden_layers=2), LlamaForCausalLM, layers=4)
    assert small.num_hidden_layers == 2
    assert shrink(small, LlamaForCausalLM, layers=4).to_dict() == small.to_dict()


def test_the_same_configuration_gives_the_same_result() -> None:
    one, two = (shrink(load("phi3").config, load("phi3").model_class, layers=2) for _ in range(2))
    assert one.to_dict() == two.to_dict()


@pytest.fixture(scope="module")
def odd() -> Subject:
    return load(str(ODD))


def test_names_that_nobody_uses(odd: Subject) -> None:
    small = shrink(odd.config, odd.model_class, layers=2, windows=frozenset({512}))
    assert (small.n_blocks, small.reach, small.kinds) == (2, 8, ["far", "near"])
    assert (small.groups, small.gain, small.mlp_mult) == (12, 1.75, 3)
    assert small.width < 256
    assert small.symbols >= 100
    assert small.longest >= 100
    assert size_of(build(odd.model_class, small)) < 400_000


@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(
    groups=st.sampled_from([2, 6, 12, 16]),
    piece=st.sampled_from([32, 64, 80]),
    n_blocks=st.integers(1, 16),
    mlp_mult=st.integers(1, 6),
    symbols=st.integers(300, 70_000),
    reach=st.integers(16, 4096),
    longest=st.integers(128, 4096),
)
def test_any_odd_sizes(odd: Subject, groups: int, piece: int, **sizes: int) -> None:
    config = type(odd.config)(width=groups * piece, groups=groups, **sizes)
    small = shrink(config, odd.model_class, layers=2, windows=frozenset({sizes["reach"]}))
    model = build(odd.model_class, small, device="cpu", dtype=torch.float64)
    assert torch.isfinite(model(**inputs(model, "cpu")).logits).all()
    assert size_of(model) < 2_000_000
    assert depth_of(model) == min(2, sizes["n_blocks"])


def test_sizes_in_lists_and_dictionaries_go_down_and_what_is_no_size_stays() -> None:
    small = shrink(SizedConfig(), SizedModel, layers=3)
    assert small.widths == [80, 64, 80]
    assert small.inside == {"gate": {"rank": 64, "scale": 0.5}, "reach": 4096}
    assert SizedConfig().widths == [1536, 512, 1536]


def test_counts_go_down_only_where_the_model_would_stay_too_large() -> None:
    assert shrink(SizedConfig(banks=32), SizedModel, layers=3).banks == 32
    small = shrink(SizedConfig(banks=120), SizedModel, layers=3)
    assert (small.banks, small.heads) == (8, 10)
    assert shrink(SizedConfig(banks=120, heads=36), SizedModel, layers=3).heads == 6


def test_a_model_that_stays_large_is_told(odd: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfspeed.planner.shrink.LIMIT", 10_000)
    with pytest.raises(SubjectError, match="parameters remain after shrinking"):
        shrink(odd.config, odd.model_class, layers=1)


def test_a_model_that_does_not_run_is_told(odd: Subject) -> None:
    config = type(odd.config)(width=100, groups=3)
    with pytest.raises(SubjectError, match=r"shape|size"):
        shrink(config, odd.model_class, layers=1)


def test_remake_derives_anew_and_keeps_what_was_put_in(odd: Subject) -> None:
    config = type(odd.config)(note="kept")
    config.late = [1, 2]
    made = remake(config, {((), "width"): 96})
    assert (made.width, made.inner_width, made.note, made.late) == (96, 288, "kept", [1, 2])
    assert (config.width, config.inner_width) == (1536, 4608)
