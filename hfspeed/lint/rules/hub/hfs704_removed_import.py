"""A name is imported that transformers no longer has."""

import ast
import re
from collections.abc import Iterator
from types import MappingProxyType

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.imports import required
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule

MODELING, TORCH = "transformers.modeling_utils", "transformers.pytorch_utils"
MOVED = {
    (MODELING, "Conv1D"): TORCH,
    (MODELING, "apply_chunking_to_forward"): TORCH,
    (MODELING, "prune_linear_layer"): TORCH,
    ("transformers.utils", "deprecate_kwarg"): "transformers.utils.deprecation",
}
GONE = {
    "transformers": {
        *("AdamW", "AutoModelForVision2Seq", "AutoModelWithLMHead", "BeamSearchScorer", "HybridCache", "LogitsWarper"),
        *("OffloadedCache", "QuantizedCacheConfig", "SinkCache", "SlidingWindowCache", "is_torch_tpu_available"),
        *("top_k_top_p_filtering",),
    },
    "transformers.cache_utils": {
        *("CacheConfig", "HQQQuantizedCache", "HybridCache", "HybridChunkedCache", "OffloadedCache"),
        *("OffloadedHybridCache", "OffloadedStaticCache", "QuantizedCacheConfig", "QuantoQuantizedCache", "SinkCache"),
        *("StaticCacheConfig",),
    },
    "transformers.generation": {"BeamScorer", "BeamSearchScorer", "ConstrainedBeamSearchScorer", "LogitsWarper"},
    "transformers.generation.logits_process": {"LogitsWarper"},
    "transformers.generation.utils": {
        *("BeamSampleOutput", "BeamSearchOutput", "ContrastiveSearchOutput", "GreedySearchOutput", "SampleOutput"),
        *("GreedySearchDecoderOnlyOutput", "SampleDecoderOnlyOutput", "SampleEncoderDecoderOutput"),
    },
    MODELING: {
        *("SequenceSummary", "find_pruneable_heads_and_indices", "get_parameter_dtype", "no_init_weights"),
        *("prune_layer",),
    },
    TORCH: {
        *("find_pruneable_heads_and_indices", "isin_mps_friendly", "prune_conv1d_layer", "prune_layer"),
        *("torch_int_div",),
    },
    "transformers.utils": {
        *("TRANSFORMERS_CACHE", "LossKwargs", "cached_property", "is_flash_attn_available", "is_flax_available"),
        *("is_safetensors_available", "is_tf_available", "is_torch_bf16_available", "is_torch_fx_available"),
        *("torch_required",),
    },
    "transformers.utils.generic": {"LossKwargs", "working_or_temp_dir"},
    "transformers.utils.import_utils": {
        *("is_flash_attn_available", "is_flax_available", "is_safetensors_available", "is_tf_available"),
        *("is_torch_fx_available", "is_torch_greater_or_equal_than_1_13"),
    },
}
MODULES = frozenset({
    *("transformers.deepspeed", "transformers.generation_utils", "transformers.generation_logits_process"),
    *("transformers.modeling_flax_utils", "transformers.modeling_tf_utils", "transformers.onnx"),
    *("transformers.utils.fx", "transformers.utils.model_parallel_utils"),
})  # fmt: skip
KINDS = re.compile(r"(FlashAttention2|SdpaAttention|_ATTENTION_CLASSES)$")
"""One attention class per kernel, as every family had them before the interface."""


class RemovedImport(Rule):
    """Release 5 of transformers took out helpers and whole modules. A file that imports one at its top cannot be loaded
    at all, whatever it uses it for.
    """

    code = "HFS704"
    since = "0.1"
    severity = Severity.ERROR
    message = "transformers 5 has no `{name}` in `{module}`"
    cost = "the file cannot be imported"
    help = "{help}"
    first = MappingProxyType({"transformers": "5.0"})

    bad = Example("""
        from transformers.modeling_utils import apply_chunking_to_forward  # HFS704
    """)
    good = Example("""
        from transformers.pytorch_utils import apply_chunking_to_forward
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look every import that is not in a try up in the tables."""
        for node, package in required(facts) if "transformers" in facts.text else ():
            if package != "transformers":
                continue
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in MODULES:
                        yield self.at(facts, node, name=alias.name.rpartition(".")[2], module="transformers", help=HELP)
                continue
            for alias in node.names:
                yield from self._found(facts, node, alias.name)

    def _found(self, facts: Facts, node: ast.ImportFrom, name: str) -> Iterator[Finding]:
        module = node.module or ""
        moved = MOVED.get((module, name))
        family = module.startswith("transformers.models.") and KINDS.search(name)
        if moved or family or module in MODULES or name in GONE.get(module, ()):
            remedy = f"import it from {moved}" if moved else HELP
            yield self.at(facts, node, name=name, module=module, help=remedy)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Import from where it is now, when it is all that is imported."""
        if isinstance(node, ast.ImportFrom) and node.module and len(node.names) == 1:
            moved = MOVED.get((node.module, node.names[0].name))
            if moved:
                yield replaced(facts, node, source(facts, node).replace(node.module, moved, 1))


HELP = "do without it, or import it in a try"
