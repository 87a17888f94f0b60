"""Shapes of attention: written out, keywords that get lost, and what attention may be told besides."""

from __future__ import annotations

from shape import Shape

RUN = "mixed, _ = run(self, query, key, value, mask, scaling=size**-0.5, **kwargs)"
LOOK_UP = "        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)\n"
FLAGS = "    _supports_sdpa = True\n    _supports_attention_backend = True\n"
CALL = "stream = self.mixer(self.before(stream), positions, mask=mask, memory=memory, **kwargs) + stream"
LOOP = "            stream = block(stream, position_ids, mask=mask, memory=past_key_values, **kwargs)\n"
LAYER = "def forward(self, stream, positions, mask=None, memory=None, **kwargs):\n        stream = self.mixer"
SCALED = RUN.replace("scaling=size**-0.5, ", "")
GROUPS = "self.num_key_value_groups = config.heads // config.kv_heads"
BY_HAND = """\
        key = key.repeat_interleave(self.num_key_value_groups, 1)
        value = value.repeat_interleave(self.num_key_value_groups, 1)
        scores = torch.matmul(query, key.transpose(2, 3)) * size**-0.5
        if mask is not None:
            scores = scores + mask
        weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
        mixed = torch.matmul(weights, value).transpose(1, 2)"""
KERNEL = """\
        key = key.repeat_interleave(self.num_key_value_groups, 1)
        value = value.repeat_interleave(self.num_key_value_groups, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None and tokens > 1)
        mixed = mixed.transpose(1, 2)"""
RUN_LINE = f"{LOOK_UP}        {RUN}"
WEIGHTS = "weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)"
KERNEL_LINE = "return F.scaled_dot_product_attention(query, key, value, is_causal=several).transpose(1, 2)"
OTHER = '''class SecondMixer(Mixer):
    """The same by a function of torch."""

    def forward(self, stream, positions, mask=None, memory=None, **kwargs):
        return super().forward(stream, positions, mask, memory, **kwargs)

    def attended(self, query, key, value, mask):
        groups = self.num_key_value_groups
        several = query.shape[2] > 1
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        return F.scaled_dot_product_attention(query, key, value, is_causal=several).transpose(1, 2)


MIXERS = {"eager": Mixer, "sdpa": SecondMixer}


class Expand(nn.Module):'''
ATTENDED = f"""

    def attended(self, query, key, value, mask):
        size = self.config.head_dim
{BY_HAND}
        return mixed


class Expand(nn.Module):"""

NONE_GIVEN = "output = self.decoder(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache)"
KEYS, VALUES = (f"self.{one} = nn.Linear(config.width, config.kv_heads * config.head_dim)" for one in ("wk", "wv"))
BY_LAYER = "config.kv_heads", "(1 + layer_idx % 2)"
HEADS = "value = self.wv(stream).reshape(batch, tokens, -1, size)"

SHAPES = {
    "1a by hand": Shape({RUN_LINE: BY_HAND, FLAGS: ""}, (("HFS101", "info", WEIGHTS),), mended=True),
    "1a by hand, flag set": Shape(
        {RUN_LINE: BY_HAND, FLAGS: "    _supports_attention_backend = True\n"},
        (("HFS101", "info", WEIGHTS), ("HFS108", "warning", "_supports_attention_backend = True")),
        mended=True,
    ),
    "1b a kernel by name": Shape(
        {RUN_LINE: KERNEL, FLAGS: "    _supports_sdpa = True\n"},
        (("HFS101", "info", KERNEL.split("\n")[2].strip()),),
    ),
    "1c one of two classes": Shape(
        {
            RUN_LINE: "        mixed = self.attended(query, key, value, mask)", FLAGS: "    _supports_sdpa = True\n",
            "self.mixer = Mixer(config": "self.mixer = MIXERS[config._attn_implementation](config",
            "\n\nclass Expand(nn.Module):": ATTENDED.replace("class Expand(nn.Module):", OTHER),
        },
        (("HFS101", "info", WEIGHTS),
         ("HFS101", "info", KERNEL_LINE),
         ("HFS209", "warning", "return super().forward(stream, positions, mask, memory, **kwargs)")),
    ),
    "2 not taken by the layer": Shape(
        {CALL: CALL.replace(", **kwargs", ""), LAYER: LAYER.replace(", **kwargs", ""),
         LOOP: LOOP.replace(", **kwargs", "")},
        (("HFS103", "warning", LAYER.partition("\n")[0].replace(", **kwargs", "")),
         ("HFS103", "warning", LOOP.replace(", **kwargs", "").strip())),
        mended=True,
    ),
    "2b not given to attention": Shape(
        {CALL: CALL.replace(", **kwargs", "")}, (("HFS103", "warning", CALL.replace(", **kwargs", "")),), mended=True
    ),
    "2c only in training": Shape(
        {LOOP: f"            if self.training:\n    {LOOP}            else:\n    {LOOP.replace(', **kwargs', '')}"},
        (("HFS103", "warning", LOOP.replace(", **kwargs", "").strip()),),
    ),
    "2d not given to the decoder": Shape(
        {"labels=None, logits_to_keep=0, **kwargs": "position_ids=None, past_key_values=None, inputs_embeds=None, "
         "attention_mask=None, use_cache=None, labels=None, logits_to_keep=0, **kwargs",
         "output = self.decoder(input_ids=input_ids, **kwargs)": NONE_GIVEN},
        (("HFS103", "warning", NONE_GIVEN),),
        mended=True,
    ),
    "10a sinks": Shape({
        RUN: RUN.replace("**kwargs", "s_aux=self.sinks, **kwargs"),
        GROUPS: f"{GROUPS}\n        self.sinks = nn.Parameter(torch.zeros(config.heads))",
        "def slow_attention(module, query, key, value, attention_mask, scaling, **kwargs):":
        "def slow_attention(module, query, key, value, attention_mask, scaling, s_aux, **kwargs):",
        "    probabilities = scores.softmax(-1, dtype=torch.float32).to(query.dtype)":
        "    sinks = s_aux.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)\n"
        "    probabilities = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1].to(query.dtype)",
    }),
    "10b soft cap": Shape({
        RUN: RUN.replace("**kwargs", "softcap=3.0, **kwargs"),
        "    if attention_mask is not None:\n        scores":
        "    scores = 3.0 * torch.tanh(scores / 3.0)\n    if attention_mask is not None:\n        scores",
    }),
    "10e heads differ by layer": Shape({
        KEYS: KEYS.replace(*BY_LAYER),
        VALUES: VALUES.replace(*BY_LAYER),
        GROUPS: "self.num_key_value_groups = config.heads // (1 + layer_idx % 2)",
    }),
    "10h scaled before": Shape({
        RUN: RUN.replace("scaling=size**-0.5", "scaling=1.0"),
        "query = turned(query, positions, self.config.theta)":
        "query = turned(query, positions, self.config.theta) * size**-0.5",
    }),
    "10i narrow values": Shape({
        "self.wv = nn.Linear(config.width, config.kv_heads * config.head_dim)":
        "self.wv = nn.Linear(config.width, config.kv_heads * 16)",
        "self.wo = nn.Linear(config.heads * config.head_dim, ": "self.wo = nn.Linear(config.heads * 16, ",
        HEADS: HEADS.replace("size", "16"),
    }),
    "10j sees what comes": Shape(
        {"is_causal = True": "is_causal = False"}, (("HFS106", "error", RUN),), served=False
    ),
    "10 a keyword of its own": Shape(
        {RUN: RUN.replace("scaling", "temperature=2.0, scaling")},
        (("HFS105", "error", RUN.replace("scaling", "temperature=2.0, scaling")),), served=False,
    ),
}  # fmt: skip
