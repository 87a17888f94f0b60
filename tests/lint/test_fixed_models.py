"""A model that was mended computes what it did, bit for bit, and finds nothing to mend any more."""

from __future__ import annotations

import copy
import re
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, read
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

BREAKS = {
    "HFS102": ("    _supports_attention_backend = True\n", ""),
    "HFS103": ("embeddings,\n            **kwargs,\n        )\n        hidden_states = residual",
               "embeddings,\n        )\n        hidden_states = residual"),
    "HFS204": ("self.o_proj(attn_output)", "nn.functional.linear(attn_output, self.o_proj.weight, self.o_proj.bias)"),
    "HFS211": ("self.up_proj(x)", "self.up_proj(input=x)"),
    "HFS902": ("import torch\n", "import torch  # noqa: HFS701\n"),
}  # fmt: skip


def authored(family: str = "llama") -> str:
    """A modeling file of the library, with imports that hold anywhere."""
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    text = (Path(spec.origin).parent / "models" / family / f"modeling_{family}.py").read_text("utf-8")
    text = re.sub(r"^from \.\.\. import", "from transformers import", text, flags=re.MULTILINE)
    text = re.sub(r"^from \.\.\.(?=\w)", "from transformers.", text, flags=re.MULTILINE)
    return re.sub(r"^from \.(?=\w)", f"from transformers.models.{family}.", text, flags=re.MULTILINE)


def logits(file: Path, architecture: str = "LlamaForCausalLM", config: Any = None) -> Any:
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    config = config or transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = getattr(module, architecture)(config).eval()
    with torch.no_grad():
        return model(input_ids=torch.arange(3, 20)[None]).logits, set(model.state_dict())


@pytest.mark.parametrize("code", [*BREAKS, "all"])
def test_a_mended_model_computes_the_same(code: str, tmp_path: Path) -> None:
    text = authored()
    for old, new in BREAKS.values() if code == "all" else [BREAKS[code]]:
        assert old in text
        text = text.replace(old, new)
    broken, mended = tmp_path / f"broken_{code}.py", tmp_path / f"mended_{code}.py"
    broken.write_text(text)
    mended.write_text(text)
    disk = Disk()
    done = mend(mended, disk, Settings())
    assert {one.code for one in done.findings} == (set(BREAKS) if code == "all" else {code})
    disk.write()
    assert check(read(mended)) == []
    (before, names), (after, names_after) = logits(broken), logits(mended)
    assert torch.equal(before, after)
    assert names == names_after


BY_HAND = {
    "gptj": ("GPTJForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}),
    "rembert": ("RemBertForCausalLM", {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "input_embedding_size": 32, "output_embedding_size": 32, "is_decoder": True,
    }),
}  # fmt: skip


@pytest.mark.parametrize("family", BY_HAND)
def test_attention_by_hand_that_was_mended_computes_the_same(family: str, tmp_path: Path) -> None:
    """With its own attention, which is what runs by default; the flag and the keywords come along."""
    architecture, sizes = BY_HAND[family]
    before, after = tmp_path / f"before_{family}.py", tmp_path / f"after_{family}.py"
    for file in (before, after):
        file.write_text(authored(family))
    disk = Disk()
    done = mend(after, disk, Settings(unsafe_fixes=True))
    assert {"HFS101", "HFS103"} <= {one.code for one in done.findings}
    disk.write()
    config = transformers.AutoConfig.for_model(family, vocab_size=64, **sizes)
    told = [logits(file, architecture, copy.deepcopy(config)) for file in (before, after)]
    assert torch.equal(told[0][0], told[1][0])
    assert told[0][1] == told[1][1]
    again = Disk()
    assert mend(after, again, Settings(unsafe_fixes=True)).findings == ()
