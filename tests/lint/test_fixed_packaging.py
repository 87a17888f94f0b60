"""What keeps a folder from being loaded is mended where there is one way to, and left alone where there are several."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from hfspeed.lint.disk import Disk
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings

CLASS = "class ExampleModel(PreTrainedModel):\n    pass\n"


def mended(text: str, auto: dict[str, str], folder: Path) -> tuple[str, dict[str, str]]:
    """The file and the map after every fix."""
    file, config = folder / "modeling_example.py", folder / "config.json"
    file.write_text(text)
    config.write_text(json.dumps({"auto_map": auto}, indent=2))
    disk = Disk()
    assert mend(file, disk, Settings(unsafe_fixes=True)).defect == ""
    disk.write()
    ast.parse(file.read_text())
    return file.read_text(), json.loads(config.read_text())["auto_map"]


@pytest.mark.parametrize(
    ("wanted", "after"),
    [
        ("modeling_old.ExampleModel", "modeling_example.ExampleModel"),
        ("modeling_example.ExmapleModel", "modeling_example.ExampleModel"),
        ("modeling_example.SomethingElse", "modeling_example.SomethingElse"),
        ("modeling_old.SomethingElse", "modeling_old.SomethingElse"),
        ("somebody/repository--modeling_old.ExampleModel", "somebody/repository--modeling_old.ExampleModel"),
    ],
)
def test_a_map_that_names_nothing(wanted: str, after: str, tmp_path: Path) -> None:
    text, auto = mended(CLASS, {"AutoConfig": "modeling_example.ExampleModel", "AutoModel": wanted}, tmp_path)
    assert text == CLASS
    assert auto == {"AutoConfig": "modeling_example.ExampleModel", "AutoModel": after}


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("import einops", "try:\n    import einops\nexcept ImportError:\n    einops = None"),
        ("import einops.layers as e  # mine",
         "try:\n    import einops.layers as e\nexcept ImportError:\n    e = None  # mine"),
        ("from einops import (\n    rearrange,\n    repeat,\n)",
         ("try:\n    from einops import (\n        rearrange,\n        repeat,\n    )\nexcept ImportError:\n"
         "    rearrange = repeat = None")),
        ("import einops, torch", "import einops, torch"),
        ("from einops import *", "from einops import *"),
        ("import torch; import einops", "import torch; import einops"),
        ("import einops; import torch", "import einops; import torch"),
    ],
)  # fmt: skip
def test_an_import_that_becomes_a_requirement(line: str, after: str, tmp_path: Path) -> None:
    text, _ = mended(f"{line}\n\n\n{CLASS}", {"AutoModel": "modeling_example.ExampleModel"}, tmp_path)
    assert text == f"{after}\n\n\n{CLASS}"
