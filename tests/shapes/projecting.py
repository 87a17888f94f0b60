"""Shapes of projections: packed in odd ways, called through helpers, in branches, with writes between them."""

from __future__ import annotations

from shape import Shape

VALUE, KEY, QUERY = (
    "value = self.wv(stream).reshape(batch, tokens, -1, size).transpose(1, 2)",
    "key = self.wk(stream).reshape(batch, tokens, -1, size)",
    "query = self.wq(stream).reshape(batch, tokens, -1, size)",
)
MADE = """\
        self.wq = nn.Linear(config.width, config.heads * config.head_dim)
        self.wk = nn.Linear(config.width, config.kv_heads * config.head_dim)
        self.wv = nn.Linear(config.width, config.kv_heads * config.head_dim)
"""
PACK = "        self.pack = nn.Linear(config.width, (config.heads + 2 * config.kv_heads) * config.head_dim)\n"
FORWARD = "    def forward(self, stream, positions, mask=None, memory=None, **kwargs):\n        batch"
EVEN = {"kv_heads": 4}
MIXER = "class Mixer(nn.Module):"


def packed(cut: str, made: str = PACK) -> dict[str, str]:
    """One product of all, and the lines that make query, key and value of it."""
    return {MADE: made, VALUE: cut, f"        {KEY}\n": "", f"        {QUERY}\n": ""}


def through(one: str, **more: str) -> dict[str, str]:
    """Each projection called as ``one`` says."""
    return {f"self.{name}(stream)": one.format(name) for name in ("wv", "wk", "wq")} | more


SIZES = "self.config.heads * size, self.config.kv_heads * size, self.config.kv_heads * size"
SPLIT = f"""query, key, value = self.pack(stream).split([{SIZES}], dim=-1)
        query, key = query.reshape(batch, tokens, -1, size), key.reshape(batch, tokens, -1, size)
        value = value.reshape(batch, tokens, -1, size).transpose(1, 2)"""
PER_HEAD = """query, key, value = self.pack(stream).view(batch, tokens, -1, 3 * size).chunk(3, dim=-1)
        value = value.transpose(1, 2)"""
GROUPED = """pack = self.pack(stream).view(batch, tokens, self.config.kv_heads, -1, size)
        query = pack[..., :-2, :].reshape(batch, tokens, -1, size)
        key, value = pack[..., -2, :], pack[..., -1, :].transpose(1, 2)"""
KEPT = "        self.widths = [config.heads * config.head_dim] + [config.kv_heads * config.head_dim] * 2\n"
THIRDS = """query, key, value = self.pack(stream).chunk(3, dim=-1)
        query, key = query.reshape(batch, tokens, -1, size), key.reshape(batch, tokens, -1, size)
        value = value.reshape(batch, tokens, -1, size).transpose(1, 2)"""
CONV = "        self.pack = Conv1D((config.heads + 2 * config.kv_heads) * config.head_dim, config.width)\n"
IMPORTED = "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS\n"
METHOD = f"""    def _qkv(self, x):
        return self.wq(x), self.wk(x), self.wv(x)

{FORWARD}"""
UNPACKED = "value = {}.reshape(batch, tokens, -1, size).transpose(1, 2)"
DICTIONARY = {
    MADE: "        self.parts = nn.ModuleDict({\n"
    '            "q": nn.Linear(config.width, config.heads * config.head_dim),\n'
    '            "k": nn.Linear(config.width, config.kv_heads * config.head_dim),\n'
    '            "v": nn.Linear(config.width, config.kv_heads * config.head_dim),\n        })\n',
    "self.wv(stream)": 'self.parts["v"](stream)', "self.wk(stream)": 'self.parts["k"](stream)',
    "self.wq(stream)": 'self.parts["q"](stream)',
}  # fmt: skip
BY_METHOD = "q, k, v = self._qkv(stream)"
GENERATED = "q, k, v = (one(stream) for one in (self.wq, self.wk, self.wv))"
HELPER = f"def _proj(layer, x):\n    return layer(x)\n\n\n{MIXER}"
BRANCHES = {
    f"        {VALUE}\n        {KEY}\n        {QUERY}\n":
    f"        {QUERY}\n        if self.reuses:\n            key, value = kwargs.pop('earlier')\n        else:\n"
    f"            {KEY}\n            {VALUE}\n",
    "        self.wq = nn": "        self.reuses = False\n        self.wq = nn",
}  # fmt: skip
SAME = {
    f"        {VALUE}\n        {KEY}\n": f"        {KEY}\n"
    "        value = (self.wv(stream).reshape(key.shape) if self.wv is not None else key).transpose(1, 2)\n",
    "        self.wv = nn.Linear(config.width, config.kv_heads * config.head_dim)":
    "        self.wv = nn.Linear(config.width, config.kv_heads * config.head_dim) if layer_idx != 1 else None",
}  # fmt: skip
WRITTEN = {f"        {VALUE}\n        {KEY}\n": f"        {VALUE}\n        stream.mul_(0.5)\n        {KEY}\n"}


def told(code: str, *lines: str) -> tuple[tuple[str, str, str], ...]:
    """Warnings of one rule."""
    return tuple((code, "warning", line) for line in lines)


def oddly(one: str) -> list[str]:
    """The three lines with their calls in another way, in the order they stand in."""
    lines = zip((VALUE, KEY, QUERY), ("wv", "wk", "wq"), strict=True)
    return [line.replace(f"self.{name}(stream)", one.format(name)) for line, name in lines]


FUNCTIONAL = "F.linear(stream, self.{0}.weight, self.{0}.bias)"
SHAPES = {
    "3a query key value": Shape(packed(SPLIT)),
    "3b thirds of each head": Shape(packed(PER_HEAD), told("HFS214", PER_HEAD.partition("\n")[0]), config=EVEN),
    "3c groups of key heads": Shape(packed(GROUPED)),
    "3d key value query": Shape(packed(
        SPLIT.replace("query, key, value = self", "key, value, query = self").replace(
            SIZES, "self.config.kv_heads * size, self.config.kv_heads * size, self.config.heads * size")
    )),
    "3e sizes kept in a list": Shape(packed(SPLIT.replace(f"[{SIZES}]", "self.widths"), PACK + KEPT)),
    "3e thirds": Shape(packed(THIRDS), config=EVEN),
    "3f a transposed weight": Shape(
        {**packed(SPLIT, CONV), IMPORTED: f"{IMPORTED}from transformers.pytorch_utils import Conv1D\n"}
    ),
    "4a a function": Shape(
        through("_proj(self.{0}, stream)", **{MIXER: HELPER}), told("HFS209", *oddly("_proj(self.{0}, stream)")),
        mended=True,
    ),
    "4a a result handed on": Shape({"self.wq(stream).reshape(batch, tokens, -1, size)":
                                    "self._shape(self.wq(stream), size)", FORWARD:
                                    "    def _shape(self, x, size):\n        return x.reshape(*x.shape[:2], -1, size)"
                                    f"\n\n{FORWARD}"}),
    "4b a generator": Shape(
        {VALUE: f"{GENERATED}\n        {UNPACKED.format('v')}", "self.wk(stream)": "k", "self.wq(stream)": "q"},
        told("HFS209", GENERATED),
    ),
    "4c a method": Shape(
        {VALUE: f"{BY_METHOD}\n        {UNPACKED.format('v')}", "self.wk(stream)": "k", "self.wq(stream)": "q",
         FORWARD: METHOD}, told("HFS209", BY_METHOD), mended=True,
    ),
    "4d a function on its weight": Shape(through(FUNCTIONAL), told("HFS204", *oddly(FUNCTIONAL)), mended=True),
    "4e by keyword": Shape(through("self.{0}(input=stream)"), mended=True),
    "4f another name for self": Shape(
        {**through("mixer.{0}(stream)"), "        batch, tokens, _ = stream.shape\n        size":
         "        mixer = self\n        batch, tokens, _ = stream.shape\n        size"},
    ),
    "4g in a dictionary": Shape(DICTIONARY, told("HFS211", *(
        line.replace(f"self.w{name}", f'self.parts["{name}"]') for line, name in ((VALUE, "v"), (QUERY, "q"))
    ))),
    "5a in a branch": Shape(BRANCHES),
    "5a values that are keys": Shape(SAME, told("HFS214", KEY)),
    "5b another name for the stream": Shape({
        f"{FORWARD}, tokens, _ = stream": f"{FORWARD}, tokens, _ = x".replace("self, stream", "self, x"),
        "self.wv(stream)": "self.wv(x)", "self.wk(stream)": "self.wk(x)", "self.wq(stream)": "self.wq(x)",
    }),
    "5 written in between": Shape(WRITTEN, told("HFS205", VALUE)),
}  # fmt: skip
