"""Shapes of what stands around the decoder: numbers, caps, norms, ties."""

from __future__ import annotations

from shape import Shape

LOGITS = "        logits = self.head(output.last_hidden_state[:, kept]) * self.config.logit_scale\n"
HEAD = "        self.head = nn.Linear(config.width, config.vocab_size, bias=False)\n"
TABLE = "        self.table = nn.Embedding(config.vocab_size, config.width)\n"
DECODER = "        self.decoder = PlainModel(config)\n"
LIST = '    _tied_weights_keys = ["head.weight"]\n'
MAP = '    _tied_weights_keys = {"head.weight": "decoder.table.weight"}\n'
WHERE = '    """The decoder with its head; the logits are scaled."""\n'
LOUD = '''class LoudEmbedding(nn.Embedding):
    """A table whose rows come out larger."""

    def forward(self, ids):
        return super().forward(ids) * 3.0


class PlainModel('''


def logits(text: str) -> dict[str, str]:
    """The logits in other words."""
    return {LOGITS: "".join(f"        {line}\n" for line in text.split("; "))}


KEPT = "output.last_hidden_state[:, kept]"
SHAPES = {
    "9a divided": Shape(logits(f"logits = self.head({KEPT}) / 4.0")),
    "9b multiplied before": Shape(logits(f"logits = self.head({KEPT} * 0.3)")),
    "9c capped": Shape(logits(f"logits = torch.tanh(self.head({KEPT}) / 4.0) * 4.0")),
    "9d a further norm": Shape({
        **logits(f"logits = self.head(self.last({KEPT}))"),
        DECODER: f"{DECODER}        self.last = Scale(config.width, config.epsilon)\n",
    }),
    "9d a further projection": Shape({
        **logits(f"logits = self.head(self.last({KEPT}))"),
        DECODER: f"{DECODER}        self.last = nn.Linear(config.width, config.width)\n",
    }),
    "9e a padded vocabulary": Shape({
        **logits(f"logits = self.head({KEPT})[..., : self.config.vocab_size]"),
        HEAD: HEAD.replace("config.vocab_size", "config.vocab_size + 6"),
    }),
    "9g tied": Shape({WHERE: f"{WHERE}\n{MAP}"}, config={"tie_word_embeddings": True}),
    "9g tied by a list": Shape(
        {WHERE: f"{WHERE}\n{LIST}"},
        (("HFS502", "error", LIST.strip()), ("HFS804", "error", "self.post_init()")),
        mended=True, served=False, config={"tie_word_embeddings": True},
    ),
    "9h a loud table": Shape({TABLE: TABLE.replace("nn.Embedding", "LoudEmbedding"), "class PlainModel(": LOUD}),
}  # fmt: skip
