"""Shapes of gated units in one piece, and of norms."""

from __future__ import annotations

from shape import Shape

MADE = """\
        self.w1 = nn.Linear(config.width, config.inner, bias=False)
        self.w2 = nn.Linear(config.inner, config.width, bias=False)
        self.w3 = nn.Linear(config.width, config.inner, bias=False)
"""
RUN = """\
        opened = self.w1(stream)
        opened = F.silu(opened)
        passed = self.w3(stream)
        gated = passed * opened
"""
WIDE = MADE.replace("config.inner, bias", "2 * config.inner, bias", 1).rpartition("        self.w3")[0]


def unit(text: str, made: str = WIDE) -> dict[str, str]:
    """One product of twice the width, and what is made of it."""
    lines = "".join(f"        {line}\n" for line in text.split("; "))
    return {MADE: made, RUN: lines}


ROOT = "        y = y / torch.sqrt((y * y).mean(dim=-1, keepdim=True) + self.epsilon)\n"
END = "        return (y * (1.0 + self.offset)).to(x.dtype)"
AROUND = "        self.offset = nn.Parameter(torch.zeros(size))"
ONES = AROUND.replace("zeros", "ones")
NORM = "def forward(self, x):"
BEFORE = "        self.before = Scale(config.width, config.epsilon)"
QUERIES = "        query = self.wq(stream).reshape(batch, tokens, -1, size)\n"
LATER = "        query = self.query_scale(query).transpose(1, 2)\n"

TWICE = "gated = passed * opened + torch.tanh(self.w4(stream)) * opened"

SHAPES = {
    "6a the first half is activated": Shape(unit("a, b = self.w1(stream).chunk(2, dim=-1); gated = F.silu(a) * b")),
    "6b the second half is activated": Shape(unit("a, b = self.w1(stream).chunk(2, dim=-1); gated = a * F.silu(b)")),
    "6c even and odd": Shape(unit("both = self.w1(stream); gated = F.silu(both[..., ::2]) * both[..., 1::2]")),
    "6d clamped": Shape(unit(
        "a, b = self.w1(stream).chunk(2, dim=-1); a, b = a.clamp(max=1.0), b.clamp(-1.0, 1.0); "
        "gated = (b + 1) * (a * torch.sigmoid(a * 1.702))"
    ), (("HFS401", "warning", "def forward(self, stream):"),)),
    "6e a lambda": Shape({
        "        opened = F.silu(opened)\n": "        opened = self.act(opened)\n",
        MADE: f"{MADE}        self.act = lambda x: F.gelu(x, approximate='tanh')\n",
    }, (("HFS213", "warning", "gated = passed * opened"),)),
    "6f one gate for two": Shape({  # which is read twice
        MADE: f"{MADE}        self.w4 = nn.Linear(config.width, config.inner, bias=False)\n",
        "        gated = passed * opened\n": f"        {TWICE}\n",
    }, (("HFS213", "warning", TWICE),)),
    "6g one has biases": Shape(
        {MADE: MADE.replace("inner, bias=False", "inner", 1)}, (("HFS208", "warning", "passed = self.w3(stream)"),)
    ),
    "7a a weight": Shape({END: END.replace("(1.0 + self.offset)", "self.offset"), AROUND: ONES}),
    "7c a power": Shape({ROOT: "        y = y * ((y * y).mean(dim=-1, keepdim=True) + self.epsilon).pow(-0.5)\n"}),
    "7e before the cast": Shape({END: "        return y.to(x.dtype) * (1.0 + self.offset)"}),
    "7f no weight": Shape({END: "        return y.to(x.dtype)", AROUND: "        pass",
                           "nn.init.zeros_(module.offset)": "pass"}),
    "7g over all heads": Shape({
        "self.query_scale = Scale(config.head_dim": "self.query_scale = Scale(config.heads * config.head_dim",
        QUERIES: "        query = self.query_scale(self.wq(stream)).reshape(batch, tokens, -1, size)\n",
        LATER: "        query = query.transpose(1, 2)\n",
    }),
    "7h a second input": Shape({
        NORM: "def forward(self, x, gate=None):",
        END: "        y = y if gate is None else y * F.silu(gate)\n" + END,
        "self.expand(self.between(stream))": "self.expand(self.between(stream, stream))",
    }),
    "7i a further number": Shape(
        {END: "        return (y * (1.0 + self.offset)).to(x.dtype) * 0.7"},
        (("HFS216", "info", "def forward(self, x):"),),
    ),
    "7j numbers differ": Shape({BEFORE: "        self.before = Scale(config.width, 0.1 * (1 + layer_idx))"}),
    "7k outside of the root": Shape(
        {ROOT: "        y = y / (torch.sqrt((y * y).mean(dim=-1, keepdim=True)) + self.epsilon)\n"},
        (("HFS216", "info", "def forward(self, x):"),),
    ),
    "7l a weight without bias": Shape(
        {BEFORE: "        self.before = nn.LayerNorm(config.width, config.epsilon, bias=False)"}
    ),
}  # fmt: skip
