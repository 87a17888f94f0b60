"""Plans are written into a configuration file as its author would, once and for all; entries are found by line."""

from __future__ import annotations

import ast

import pytest

from hfspeed.plan.styles import StylePlans
from hfspeed.source.configuration import declared, with_plans

TP = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}
PP = {"table": (["input_ids"], ["inputs_embeds"]), "layers": (["x", "attention_mask"], ["x"])}
PLANS = StylePlans(TP, PP, {})

BARE = '''class Config(Parent):
    """What it is."""

    model_type = "x"
    attribute_map = {"a": "b"}

    size: int = 3
'''
ADDED = '''class Config(Parent):
    """What it is."""

    model_type = "x"
    attribute_map = {"a": "b"}
    base_model_tp_plan = {
        "layers.*.up": "colwise",
        "layers.*.down": "rowwise",
    }
    base_model_pp_plan = {
        "table": (["input_ids"], ["inputs_embeds"]),
        "layers": (["x", "attention_mask"], ["x"]),
    }

    size: int = 3
'''
OLD = """class Config:
  base_model_tp_plan = {  # by hand
    'layers.*.up': 'colwise',  # because it is wide
    'layers.*.gone': 'rowwise',
  }
  base_model_pp_plan = {'table': (['input_ids'], ['inputs_embeds']), 'layers': (['x', 'attention_mask'], ['x'])}
  base_model_ep_plan = {'layers.*.experts': 'grouped_gemm'}
"""
MENDED = """class Config:
  base_model_tp_plan = {  # by hand
    'layers.*.up': 'colwise',  # because it is wide
    'layers.*.down': 'rowwise',
  }
  base_model_pp_plan = {'table': (['input_ids'], ['inputs_embeds']), 'layers': (['x', 'attention_mask'], ['x'])}
  base_model_ep_plan = {'layers.*.experts': 'grouped_gemm'}
"""
NOTED = """class Config:
  name = "one 'quoted' word"
  base_model_tp_plan = {
    # going up
    'layers.*.up': 'replicate',  # because it is wide
    # going down
    'layers.*.down': 'rowwise'  # the last one
    # nothing else
  }
"""
NOTED_AFTER = NOTED.replace("'replicate'", "'colwise'").replace("'rowwise'  #", "'rowwise',  #")
TABS = "class Other: pass\nclass Config:\n\tdef f(self):\n\t\treturn 1\n"


@pytest.mark.parametrize(
    ("before", "after"), [(BARE, ADDED), (OLD, MENDED), (NOTED, NOTED_AFTER)], ids=["added", "mended", "noted"]
)
def test_plans_are_written_as_the_file_is(before: str, after: str) -> None:
    plans = PLANS if before != NOTED else StylePlans(TP)
    assert with_plans(before, "Config", plans) == after
    assert with_plans(after, "Config", plans) == after


def test_every_other_line_stays() -> None:
    crlf = BARE.replace("\n", "\r\n")
    assert with_plans(crlf, "Config", PLANS) == ADDED.replace("\n", "\r\n")
    made = with_plans(TABS, "Config", PLANS)
    assert made.startswith('class Other: pass\nclass Config:\n\tbase_model_tp_plan = {\n\t\t"layers.*.up"')
    assert made.endswith("\t}\n\tdef f(self):\n\t\treturn 1\n")
    assert with_plans(BARE, "Config", StylePlans()) == BARE


def test_a_file_of_single_quotes_gets_single_quotes() -> None:
    text = BARE.replace('"""', "@").replace('"', "'").replace("@", '"""')
    assert "    base_model_tp_plan = {\n        'layers.*.up': 'colwise',\n" in with_plans(text, "Config", PLANS)


def test_what_is_written_says_the_same() -> None:
    tree = ast.parse(with_plans(OLD, "Config", PLANS))
    said = {n.targets[0].id: ast.literal_eval(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign)}
    assert said["base_model_tp_plan"] == TP
    assert said["base_model_pp_plan"] == PP


@pytest.mark.parametrize(("text", "told"), [("class A:\n", "does not parse"), ("x = 1\n", "has no class Config")])
def test_what_cannot_be_written_is_said(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        with_plans(text, "Config", PLANS)


def test_entries_are_found_by_line(tmp_path, monkeypatch) -> None:
    (tmp_path / "said_by_hand.py").write_text(OLD + "\n\nclass Child(Config):\n  pass\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import said_by_hand

    found = declared(said_by_hand.Child, "tp")
    assert found is not None
    assert (found.file.name, found.line, found.at("layers.*.gone"), found.at("nowhere")) == ("said_by_hand.py", 2, 4, 2)
    said_by_hand.Config.base_model_ep_plan = None
    assert declared(said_by_hand.Child, "ep") is None
