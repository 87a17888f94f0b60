"""One computation in many spellings: what hypothesis draws gated MLPs and attention forwards from."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from hfspeed.example import Example

CHILDREN = (
    "gate", "up", "down", "w1", "w2", "w3", "fc", "left", "right", "dense_h_to_4h", "q", "k", "v", "o", "gate_up_proj",
    "qkv_proj", "act_and_mul", "gate_up", "a_b", "lin_1", "q_out", "W_pack", "c_attn", "wo", "proj",
)  # fmt: skip
"""Names for children, those that fusions would like to use among them."""
LOCALS = (
    "g", "u", "h", "t", "gate", "up", "out", "tmp", "gate_up", "q", "k", "v", "q_out", "k_out", "x1", "state", "act",
    "w1_out", "gate_out",
)  # fmt: skip
"""Names for temporaries, equal to those of children or not."""
CASTS = ("", "", ".float()", ".to(x.dtype)", ".contiguous()", ".type_as(x)", ".to(torch.float64)", ".clone()")
"""What may stand behind a value without changing what is computed."""
ACTS = {
    "silu": (("F.silu({})", None), ("self.{act}({})", "nn.SiLU()"), ("nn.functional.silu(input={})", None)),
    "gelu": (("F.gelu({})", None), ("self.{act}({})", "nn.GELU()")),
    "gelu_tanh": (("F.gelu({}, approximate='tanh')", None), ("self.{act}({})", "nn.GELU(approximate='tanh')")),
}
"""Spellings of each activation that has a kernel, and the child that each needs."""
PRODUCTS = ("{0} * {1}", "{1} * {0}", "torch.mul({0}, {1})", "{0}.mul({1})", "torch.multiply(input={1}, other={0})")
BETWEEN = ("", "", "", "# a remark", "\n", "\n# a remark about `x`\n")


@dataclass(frozen=True)
class Spelling:
    """A forward, and what its author called the children, by role."""

    source: str
    names: dict[str, str]
    kind: str = ""
    children: dict[str, str] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.source

    @property
    def example(self) -> Example:
        """The same for `hfspeed.testing`."""
        return Example(self.source, children=self.children, widths=self.widths)


def _lines(draw: st.DrawFn, statements: list[str]) -> str:
    """Statements with blank lines and remarks between them."""
    return "\n".join(line for stmt in statements for line in (draw(st.sampled_from(BETWEEN)), stmt) if line)


def _wrapped(draw: st.DrawFn, text: str) -> str:
    """The same expression, perhaps in parentheses, perhaps over several lines."""
    return draw(st.sampled_from((text, text, f"({text})", f"(\n    {text}\n)", f"(  # here\n    {text}\n)")))


def _called(draw: st.DrawFn, name: str, value: str = "x") -> str:
    form = draw(st.sampled_from(("self.{}({})", "self.{}({})", "self.{}(input={})", "self.{}(({}))", "self.{}({},)")))
    return form.format(name, value)


def _names(draw: st.DrawFn, pool: tuple[str, ...], count: int) -> list[str]:
    return draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count, unique=True))


@st.composite
def gated(draw: st.DrawFn) -> Spelling:
    """``down(act(gate(x)) * up(x))``."""
    gate, up, down, act = _names(draw, CHILDREN, 4)
    first, second, third, fourth = _names(draw, LOCALS, 4)
    kind = draw(st.sampled_from(sorted(ACTS)))
    form, child = draw(st.sampled_from(ACTS[kind]))
    one, other = ([], _cast(draw, _called(draw, gate))), ([], _cast(draw, _called(draw, up)))
    for (stmts, value), name in ((one, first), (other, second)):
        if draw(st.booleans()):
            stmts.append(f"{name} = {_wrapped(draw, value)}")
    left = first if one[0] else one[1]
    right = second if other[0] else other[1]
    before = [*one[0], *other[0]] if draw(st.booleans()) else [*other[0], *one[0]]
    left = _cast(draw, form.format(left, act=act))
    if draw(st.booleans()):  # a temporary, perhaps the one that held the gate
        name = draw(st.sampled_from((first, third)))
        before.append(f"{name} = {_wrapped(draw, left)}")
        left = name
    product = _cast(draw, f"({draw(st.sampled_from(PRODUCTS)).format(left, right)})")
    if draw(st.booleans()):
        name = draw(st.sampled_from((first, third, fourth)))
        before.append(f"{name} = {product}")
        product = name
    before.append(f"return self.{down}({_wrapped(draw, product)})")
    children = {act: child} if child else {}
    return Spelling(_lines(draw, before), {"gate": gate, "up": up, "down": down}, kind, children)


def _cast(draw: st.DrawFn, value: str) -> str:
    return value + draw(st.sampled_from(CASTS))


VIEWS = (
    ".view(1, 6, -1, 8).transpose(1, 2)",
    ".view(*x.shape[:-1], -1, 8).transpose(1, 2)",
    ".reshape(x.shape[0], x.shape[1], -1, 8).permute(0, 2, 1, 3)",
    ".unflatten(-1, (-1, 8)).swapaxes(-3, -2)",
)
JOINS = (".reshape(1, 6, -1)", ".flatten(-2)", ".reshape(*x.shape[:-1], -1).contiguous()")


@st.composite
def attention(draw: st.DrawFn) -> Spelling:
    """Query, key and value of one input into the interface, and a projection of what comes out."""
    q, k, v, o, norm = _names(draw, CHILDREN, 5)
    mine = _names(draw, LOCALS, 4)
    normed = draw(st.booleans())
    parts, values = [], []
    for number, child in enumerate((q, k, v)):
        value = _cast(draw, _called(draw, child))
        view = draw(st.sampled_from(VIEWS))
        if normed and number < 2:
            value = f"self.{norm}({value}{view}){draw(st.sampled_from(CASTS))}"
        else:
            value = _cast(draw, value + view)
        if draw(st.booleans()):
            parts.append(f"{mine[number]} = {_wrapped(draw, value)}")
            value = mine[number]
        values.append(value)
    statements = draw(st.permutations(parts))
    tail = draw(st.sampled_from((", None", ", None, scaling=0.3", ", attention_mask=None, dropout=0.0")))
    out = "attention(self, {}, {}, {}{})[0]".format(*values, tail)
    if draw(st.booleans()):
        statements.append(f"{mine[3]} = {out}")
        out = mine[3]
    statements.append(f"return self.{o}({out}{draw(st.sampled_from(JOINS))})")
    bias = draw(st.booleans())
    children = {norm: "nn.RMSNorm(8, eps=1e-6)"} if normed else {}
    children |= {n: f"nn.Linear(16, {w}, bias={bias})" for n, w in ((q, 32), (k, 16), (v, 16))}
    return Spelling(_lines(draw, statements), {"q": q, "k": k, "v": v, "o": o}, "bias" * bias, children, {o: 16})
