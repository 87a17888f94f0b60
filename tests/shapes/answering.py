"""Shapes of what code asks its layers, and of what it makes of logits."""

from __future__ import annotations

from shape import Shape

KEPT = "output.last_hidden_state[:, kept]"
LOGITS = f"        logits = self.head({KEPT}) * self.config.logit_scale\n"
HEAD = "        self.head = nn.Linear(config.width, config.vocab_size, bias=False)\n"
LOOP = "        for block in self.blocks:\n"
WO = "        self.wo = nn.Linear(config.heads * config.head_dim, config.width, bias=False)\n"
W3 = "        self.w3 = nn.Linear(config.width, config.inner, bias=False)\n"
MASKED = "        logits = logits.masked_fill(torch.arange(logits.shape[-1]) >= 240, float('-inf'))\n"
MIXED = f"""        shares = self.shares({KEPT}).softmax(-1)
        several = self.several({KEPT}).tanh().unflatten(-1, (3, -1))
        logits = ((self.head(several) * 4).softmax(-1) * shares[..., None]).sum(-2).add(1e-9).log()
"""
HOOK = "self.w2.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))"
SHAPES = {
    "10a masked with infinity": Shape({LOGITS: LOGITS + MASKED}),
    "10b a mixture of softmaxes": Shape({
        LOGITS: MIXED,
        HEAD: f"{HEAD}        self.shares = nn.Linear(config.width, 3)\n"
              "        self.several = nn.Linear(config.width, 3 * config.width)\n",
    }),
    "10c what a table says of itself": Shape({
        LOOP: f"        stream = stream * (self.table.embedding_dim / self.table.num_embeddings) ** 0.5\n{LOOP}",
    }),
    "10d a learned scale": Shape({
        "scaling=size**-0.5": "scaling=self.warmth * size**-0.5",
        WO: f"{WO}        self.warmth = nn.Parameter(torch.ones(()))\n",
    }),
    "10e a linear with a hook": Shape(
        {W3: f"{W3}        {HOOK}\n"}, (("HFS213", "warning", HOOK),),
    ),
}  # fmt: skip
