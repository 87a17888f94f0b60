"""Ordinary code that is planned, and code whose refusal names the line and what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Embed, Head, Keep, Proof, Stacked, laws
from hfspeed.planner.causal import begun
from hfspeed.planner.decide import decide
from hfspeed.planner.unproven import unproven
from hfspeed.refusal import Reason, Refusal

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LOOP = "        for block in self.blocks:\n"
LAST = "        return self.expand(self.between(stream)) + stream"
LOGITS = "logits = self.head(output.last_hidden_state[:, kept]) * self.config.logit_scale\n"
WRAPPED = f"        {LOGITS}"
WO = "        self.wo = nn.Linear(config.heads * config.head_dim, config.width, bias=False)\n"
W2 = "        self.w2 = nn.Linear(config.inner, config.width, bias=False)\n"
W3 = "        self.w3 = nn.Linear(config.width, config.inner, bias=False)\n"
SCALED = "scaling=size**-0.5"
LEARNED = (WO, f"{WO}        self.warmth = nn.Parameter(torch.tensor(0.3))\n")
BLOCKS = "        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.depth))\n"
IMPORT = "from .configuration_plain import PlainConfig\n"
MASKED = "        logits = logits.masked_fill(torch.arange(logits.shape[-1]) > 90, float('-inf'))\n"
ONE_HOT = """        if input_ids is not None:
            logits = logits - F.one_hot(input_ids[:, kept], logits.shape[-1])
"""
ALL = "        for number, block in enumerate(self.blocks):\n            if number >= 4:\n                stream = {}\n"


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_logits_that_are_masked_with_infinity(tmp_path: Path) -> None:
    assert decide(mutant(tmp_path, (WRAPPED, WRAPPED + MASKED))).proofs


def test_a_mask_of_infinity_that_differs_is_still_seen(tmp_path: Path) -> None:
    late = MASKED.replace("> 90", "> 40 + torch.arange(logits.shape[1])[:, None]")
    with pytest.raises(RefusedError, match="row by row"):
        decide(mutant(tmp_path, (WRAPPED, WRAPPED + late)))


@pytest.mark.parametrize(
    "asked", ["self.table.embedding_dim", "self.table.num_embeddings", "(1 if self.table.padding_idx is None else 2)"]
)
def test_what_a_table_says_of_itself(asked: str, tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (LOOP, f"        stream = stream * {asked} ** 0.5\n{LOOP}")))
    assert any(isinstance(op, Embed) for op in plan.ops)
    assert plan.tensor


def test_what_projections_say_of_themselves(tmp_path: Path) -> None:
    output = "        return self.wo(mixed.reshape(batch, tokens, -1))"
    changed = output.replace("-1))", "-1)) * (self.wo.out_features / 32)")
    wrapped = WRAPPED.replace("self.config.logit_scale", "self.head.in_features ** -0.5")
    plan = decide(mutant(tmp_path, (output, changed), (WRAPPED, wrapped)))
    assert any(isinstance(op, Head) for op in plan.ops)
    assert plan.tensor


@pytest.mark.parametrize("scale", ["self.warmth", "self.warmth.exp() * torch.ones(1, 1, 1)"])
def test_a_learned_scale_goes_to_the_query(scale: str, tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, LEARNED, (SCALED, f"scaling={scale}")))
    assert {op.scale for op in plan.ops if isinstance(op, Attention)} == {1.0}
    assert "decoder.blocks.0.mixer.warmth" in {op.path for op in plan.ops if isinstance(op, Keep)}


def test_scores_that_only_eager_attention_caps(tmp_path: Path) -> None:
    """transformers' own sdpa leaves the cap out; that is no answer of the author's."""
    scores = '    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scaling\n'
    changes = [
        (SCALED, f"{SCALED}, softcap=0.5"),
        ("attention_mask, scaling, **kwargs", "attention_mask, scaling, softcap=None, **kwargs"),
        (scores, f"{scores}    scores = torch.tanh(scores / softcap) * softcap\n"),
    ]
    assert {op.softcap for op in decide(mutant(tmp_path, *changes)).ops if isinstance(op, Attention)} == {0.5}


def test_a_loop_that_does_more_in_late_layers(tmp_path: Path) -> None:
    """The small model has all layers then."""
    loop = ALL.format("stream + 0.5 * stream.roll(1, -1)")
    plan = decide(mutant(tmp_path, (LOOP, loop), depth=7))
    assert plan.proofs


def test_a_weight_that_is_computed(tmp_path: Path) -> None:
    """torch makes a class for each such module; their weights are the author's own business."""
    plan = decide(mutant(tmp_path, (W3, f"{W3}        nn.utils.parametrizations.weight_norm(self.w3)\n")))
    assert "decoder.blocks.0.expand.w3.parametrizations.weight.original0" in {
        op.path for op in plan.ops if isinstance(op, Keep)
    }


def test_rounded_activations_are_told(tmp_path: Path) -> None:
    changed = f"        stream = (stream * 64).round() / 64\n{EXPAND}"
    told = [one for one in decide(mutant(tmp_path, (EXPAND, changed))).refusals if one.wanted == "numbers"]
    assert len(told) == 1
    assert "`round` rounds" in told[0].found
    assert ".round()" in line(told[0])


@pytest.mark.parametrize(
    "hook",
    ["w2.register_forward_pre_hook(lambda m, a: (a[0] * 0.5,))", "w1.register_forward_hook(lambda m, a, o: o * 0.5)"],
)
def test_a_linear_with_hooks_stays(hook: str, tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (W3, f"{W3}        self.{hook}\n")))
    part = hook.partition(".")[0]
    assert f"decoder.blocks.0.expand.{part}" in {op.path for op in plan.ops if isinstance(op, Keep)}
    assert not any(isinstance(op, Stacked) and part in op.parts for op in plan.ops)
    told = next(one for one in plan.refusals if "it has hooks" in one.found)
    assert hook in line(told)


EXPERTS = """        opened = self.w1(stream)
        flat = stream.reshape(-1, stream.shape[-1])
        scores = flat[:, :4]
        scores = scores - scores.mean(0)
        out = torch.zeros_like(flat)
        for number in range(4):
            rows = torch.where(scores.argmax(-1) == number)[0]
            out.index_add_(0, rows, flat[rows] * (number + 1))
        opened = opened + self.w1(out.view_as(stream))
"""
EXPAND = "        opened = self.w1(stream)\n"
TOLD: dict[str, tuple[str, Reason, str, list[tuple[str, str]]]] = {
    "experts that look at the mean": (
        "by `mean` a token notices others",
        Reason.NUMBERS_DIFFER,
        "scores - scores.mean(0)",
        [(EXPAND, EXPERTS)],
    ),
    "the first token of a row": (
        "a token notices others",
        Reason.NUMBERS_DIFFER,
        "stream[:, :1] * 0.3",
        [(LAST, f"        stream = stream + stream[:, :1] * 0.3\n{LAST}")],
    ),
    "token ids in the wrapper": (
        "reads the token ids",
        Reason.WRAPPER_NOT_ROWWISE,
        "F.one_hot",
        [(WRAPPED, WRAPPED + ONE_HOT)],
    ),
    "places of rows in the wrapper": (
        "`arange`",
        Reason.WRAPPER_NOT_ROWWISE,
        "torch.arange(logits.shape[1])",
        [(WRAPPED, f"{WRAPPED}        logits = logits * (1 + (torch.arange(logits.shape[1]) > 60)[:, None])\n")],
    ),
    "a number read off a weight": (
        "reads a plain number off its weights",
        Reason.VALUE_VARIES,
        "scaling=float(self.warmth)",
        [LEARNED, (SCALED, "scaling=float(self.warmth)")],
    ),
    "modules in a list": (
        "`kept` keeps a module or parameter beside the tree",
        Reason.USED_ELSEWHERE,
        "block.kept = [",
        [
            (
                BLOCKS,
                f"{BLOCKS}        for block in self.blocks:\n            block.kept = [self.blocks[0].mixer.wo]\n",
            ),
            (LAST, f"        stream = stream + self.kept[0](stream)\n{LAST}"),
        ],
    ),
    "a parameter in a dictionary": (
        "`kept` keeps a module or parameter beside the tree",
        Reason.USED_ELSEWHERE,
        "self.kept = {",
        [
            (W3, f"{W3}        self.kept = {{'a': self.w2.weight}}\n"),
            (EXPAND, f"{EXPAND}        stream = stream + self.kept['a'].mean()\n"),
        ],
    ),
    "positions that part the masks": (
        "neither causal, nor a window",
        Reason.MASK_NOT_CAUSAL,
        "mixed, _ = run(",
        [("        mask = create", "        position_ids = position_ids // 2\n        mask = create")],
    ),
}


def refused(folder: Path, *changes: tuple[str, str], **sizes: int) -> tuple[Refusal, ...]:
    with pytest.raises(RefusedError) as no:
        decide(mutant(folder, *changes, **sizes))
    return no.value.refusals


def line(refusal: Refusal) -> str:
    assert refusal.place is not None
    return Path(refusal.place.file).read_text("utf-8").split("\n")[refusal.place.line - 1]


@pytest.mark.parametrize("what", TOLD)
def test_told_at_the_line(what: str, tmp_path: Path) -> None:
    told, reason, text, changes = TOLD[what]
    first = next(one for one in refused(tmp_path, *changes) if told in one.found)
    assert first.reason is reason
    assert text in line(first)
    assert first.help
    assert what != "positions that part the masks" or "one by one" in first.help


def test_what_only_the_large_model_would_have(tmp_path: Path) -> None:
    full, first = begun(mutant(tmp_path))
    found = unproven(full, first, ())
    assert {"heads", "stacked", "norm"} <= {one.found.partition("served as `")[2].partition("`")[0] for one in found}
    assert all(one.reason is Reason.CANNOT_RUN and one.help for one in found)
    assert {"forward" in line(one) for one in found} == {True}
    assert unproven(full, first, [Proof(laws.claim(op), "", 0.0, 0.0) for op in first.ops]) == ()


PROCESS = {
    "an environment variable": ("os.environ.get('SERVING')", "import os\n", "os.environ"),
    "a function for that": ("getenv('SERVING')", "from os import getenv\n", "getenv"),
    "modules that are loaded": ("'vllm' in sys.modules", "import sys\n", "sys.modules"),
    "ranks": ("dist.is_initialized()", "import torch.distributed as dist\n", "dist.is_initialized"),
    "the name of the machine": ("socket.gethostname() == 'a'", "import socket\n", "socket.gethostname"),
    "the clock": ("time.time() < 0", "import time\n", "time.time"),
    "the day": ("datetime.now().year < 9", "from datetime import datetime\n", "datetime.now"),
    "dice": ("random.random() < 0", "import random\n", "random.random"),
    "the caller": ("len(inspect.stack()) > 9999", "import inspect\n", "inspect.stack"),
    "what the file found when it was imported": ("SERVES", "import os\n\nSERVES = 'S' in os.environ\n", "SERVES"),
    "a helper that keeps it": (
        "served()",
        "import os\nfrom functools import cache\n\n\n@cache\ndef served():\n    return 'S' in os.environ\n",
        "os.environ",
    ),
    "what a class found": ("Flags.on", "import os\n\n\nclass Flags:\n    on = 'S' in os.environ\n", "on"),
    "a helper": ("served()", "import sys\n\n\ndef served():\n    return 'vllm' in sys.modules\n", "sys.modules"),
}


@pytest.mark.parametrize("what", PROCESS)
def test_questions_to_the_process(what: str, tmp_path: Path) -> None:
    question, header, name = PROCESS[what]
    branch = f"        if {question}:\n            stream = stream * 1.5\n{LAST}"
    (no,) = refused(tmp_path, (IMPORT, IMPORT + header), (LAST, branch))
    assert no.found.startswith(f"`{name}` is asked while the model runs")
    assert name.split(".")[-1] in line(no)


def test_what_lies_in_a_file_of_its_own(tmp_path: Path) -> None:
    hotter = f"{WRAPPED}        logits = logits * getattr(self.generation_config, 'heat', 1.0)\n"
    (no,) = refused(tmp_path, (WRAPPED, hotter))
    assert no.found.startswith("`self.generation_config` is asked while the model runs")
    assert "self.generation_config" in line(no)


def test_questions_to_the_process_when_it_is_built(tmp_path: Path) -> None:
    changes = [(IMPORT, f"{IMPORT}import os\n"), (W3, f"{W3}        self.factor = 2 if 'FAST' in os.environ else 1\n")]
    (no,) = refused(tmp_path, *changes)
    assert no.found.startswith("`os.environ` is asked while the model is built")
    assert "self.factor" in line(no)


def test_questions_that_nobody_asks(tmp_path: Path) -> None:
    """What is for training alone, what chooses a package, and a file that looks itself up."""
    header = (
        "import os\nimport sys\nimport torch.distributed as dist\n"
        "try:\n    import surely_not_there\nexcept ImportError:\n    surely_not_there = None\n"
    )
    branch = (
        "        os.environ['WORD'] = 'a'\n"
        "        if self.training and dist.is_initialized() and os.environ:\n            stream = stream * 1.5\n"
        "        if surely_not_there is not None or sys.modules[__name__].Block is not type(self):\n"
        f"            stream = stream * 2.5\n{LAST}"
    )
    assert decide(mutant(tmp_path, (IMPORT, IMPORT + header), (LAST, branch))).proofs
