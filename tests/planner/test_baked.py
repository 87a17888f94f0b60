"""Numbers that modules take by the dtype they are in: as the author takes them where it is served, or refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Norm
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant
from test_unreached import CALL, HAND, MASKED

NORM = "self.epsilon)"
GATED = "        opened = F.silu(opened)\n", "        opened = self.curve(opened)\n"
HELD = "        self.w1 = nn.Linear(", "        self.curve = Curve()\n        self.w1 = nn.Linear("
LINE = "        return F.gelu(x, approximate='tanh' if x.dtype == torch.bfloat16 else 'none')"
CURVE = f"class Curve(nn.Module):\n    def forward(self, x):\n{LINE}\n\n\nclass Expand(nn.Module):"


@pytest.mark.parametrize(("dtype", "eps"), [("float32", 1e-6), ("bfloat16", 1e-6), ("float16", 1e-3)])
def test_a_norm_whose_epsilon_hangs_on_the_dtype_stays_as_written(dtype: str, eps: float, tmp_path: Path) -> None:
    other = f"({eps} if x.dtype == torch.{dtype} else 1e-12))"
    plan = decide(mutant(tmp_path, (NORM, other)))
    assert not [op for op in plan.ops if isinstance(op, Norm)]


def test_a_norm_whose_epsilon_a_checkpoint_has_stays_as_written(tmp_path: Path) -> None:
    saved = 'self.register_buffer("epsilon", torch.tensor(epsilon))'
    plan = decide(mutant(tmp_path, ("self.epsilon = epsilon", saved)))
    assert not [op for op in plan.ops if isinstance(op, Norm)]


def test_an_activation_that_hangs_on_the_dtype_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as no:
        decide(mutant(tmp_path, ("class Expand(nn.Module):", CURVE), HELD, GATED))
    (first,) = no.value.refusals
    assert "takes other numbers in bfloat16" in first.found
    assert first.place is not None
    assert Path(first.place.file).read_text().splitlines()[first.place.line - 1] == LINE


def test_the_least_number_of_a_dtype_is_no_such_number(tmp_path: Path) -> None:
    least = HAND.replace("-1e9", "torch.finfo(query.dtype).min")
    hand = least.replace("device=key.device).masked", "dtype=key.dtype).masked")
    plan = decide(mutant(tmp_path, (CALL, hand), MASKED))
    assert [op.measured for op in plan.ops if isinstance(op, Attention)] == [True, True]
