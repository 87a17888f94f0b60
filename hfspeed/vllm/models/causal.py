"""The model class vLLM loads: the author's modules in the author's tree, made of vLLM's layers by a plan."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import (
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.logger import init_logger
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.interfaces import SupportsLoRA, SupportsPP
from vllm.sequence import IntermediateTensors

from hfspeed.errors import HfspeedError
from hfspeed.plan import Embed, Head, Plan
from hfspeed.planner.cache import own_code
from hfspeed.planner.ends import table_of
from hfspeed.planner.wrapper import name_of
from hfspeed.reference.run import constants, unread
from hfspeed.vllm import layout, stale
from hfspeed.vllm.artifacts import load_compiled
from hfspeed.vllm.build import build, packed_names
from hfspeed.vllm.kind import of_plan
from hfspeed.vllm.layers.embed import tie
from hfspeed.vllm.logits import Logits
from hfspeed.vllm.materialise import materialise, move_values
from hfspeed.vllm.models.refusing import not_served
from hfspeed.vllm.regions import Regions, divides
from hfspeed.vllm.site import Site
from hfspeed.vllm.stages import carried, cut, empty_tensors
from hfspeed.vllm.startup import story
from hfspeed.vllm.subject import Prepared, prepare
from hfspeed.vllm.versions import mark_compile_key
from hfspeed.vllm.weights import Loader

logger = init_logger("vllm.hfspeed")


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "intermediate_tensors": 0, "inputs_embeds": 0})
class TransformersForCausalLM(nn.Module, SupportsLoRA, SupportsPP):
    """A text-only causal language model, by its author's forward.

    Children and parameters have the author's names, so adapters and quantised checkpoints find their places.
    """

    packed_modules_mapping: dict[str, list[str]] = {}  # noqa: RUF012  vLLM reads both on the class as well
    embedding_modules: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        if vllm_config.model_config.runner_type == "pooling":
            raise not_served(vllm_config, "asked for its hidden states (--runner pooling)")
        prepared = prepare(vllm_config)
        self.plan: Plan = prepared.plan
        self.config = vllm_config.model_config.hf_config
        self.vocabulary = vllm_config.model_config.get_vocab_size()
        parallel = vllm_config.parallel_config
        layout.check(self.plan, ranks=parallel.tensor_parallel_size, stages=parallel.pipeline_parallel_size)
        layout.check_length(self.plan, vllm_config.model_config.max_model_len)
        self._check_kind()
        apart = divides(self.plan, vllm_config)
        mark_compile_key(vllm_config, f"{prepared.digest} {own_code()}" + " by layer" * apart)
        self._name_for_vllm(vllm_config, prepared.author)
        self.loader = Loader(
            self.plan,
            prepared.author,
            strict=vllm_config.load_config.load_format != "dummy",
            place=(get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()),
        )
        _build(prepared, vllm_config, prefix, apart=apart)
        stale.check(self.plan.architecture, prepared.author)
        self._adopt(prepared.author)
        self.author = (prepared.author,)  # no child: all that it holds is ours
        self.regions = Regions(self.plan, self, divides=apart)
        self.last_stage = bool(get_pp_group().is_last_rank)
        self.make_empty_intermediate_tensors = empty_tensors(self.plan.size)
        names = self.plan.wrapper.keywords
        self.position_names = tuple(n for n in ("position_ids", "token_positions") if n in names)
        self.across = 1 if self.plan.wrapper.tokens_first else 0
        self.constant = _constants(self._base()) | constants(self.plan)
        if self.last_stage:
            if self.head_path:
                self.logits_processor = LogitsProcessor(self._head().num_embeddings)
            self.logits = Logits(prepared.author, self.plan, self._project if self.head_path else None)
        for line in story(self.plan):
            logger.info_once(line)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """``[tokens]`` to ``[tokens, size]``: the token table, as the author's decoder begins with it."""
        out: torch.Tensor = self.get_submodule(self.embed_path)(input_ids)
        return out

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | IntermediateTensors:
        """One step of the author's base model over all scheduled tokens, laid side by side.

        Args:
            input_ids: ``[tokens]``; not read where ``inputs_embeds`` is given.
            positions: ``[tokens]``, each token's place in its own sequence.
            intermediate_tensors: what the stage before hands on.
            inputs_embeds: ``[tokens, size]``, in place of ``input_ids``.

        Returns:
            ``[tokens, size]`` hidden states; as intermediate tensors on all stages but the last.
        """
        before = carried(intermediate_tensors)
        if before is not None:
            given = self._unread(before) | {"intermediate": before.unsqueeze(self.across)}
        elif inputs_embeds is not None:
            given = {"inputs_embeds": inputs_embeds[None]}
        else:
            assert input_ids is not None
            given = {self.plan.wrapper.ids: input_ids[None].long()}  # the author's are; products of ids must not wrap
        if self.plan.wrapper.first_position:
            positions = positions + self.plan.wrapper.first_position
        for name in self.position_names:
            given[name] = positions[None]
        out = self._base()(**given, **self.constant)
        hidden = (out if isinstance(out, torch.Tensor) else out[0]).squeeze(self.across)
        return hidden if self.last_stage else IntermediateTensors({"hidden_states": hidden})

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """``[tokens, size]`` to ``[tokens, vocab]`` in float32, by the author's own wrapper.

        A token that its projection knows nothing of, though the vocabulary has it, is never written.
        """
        logits = self.logits(hidden_states).float()
        lacking = self.vocabulary - logits.shape[-1]
        return nn.functional.pad(logits, (0, lacking), value=-torch.inf) if lacking > 0 else logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Fill the parameters from checkpoint tensors; the names of those that were filled."""
        return self.loader.load(self, weights)

    def aot_compile(self, *args: Any, **keywords: Any) -> Any:
        """As vLLM's, layer by layer where equal layers can share what is compiled."""
        return self.regions.compiled(super().aot_compile, *args, **keywords)

    def _check_kind(self) -> None:
        """What vLLM was told of states must be true: else it would give them no room, and forget them."""
        told = ("Hybrid" if getattr(self, "is_hybrid", False) else "") or (
            "AttentionFree" if getattr(self, "is_attention_free", False) else ""
        )
        if told != of_plan(self.plan):
            found = f"{self.plan.architecture} is built as {type(self).__name__}, which says otherwise about states"
            raise HfspeedError(f"{found} than its plan; serve it with --model-impl transformers, by its own name")

    def _name_for_vllm(self, vllm_config: Any, author: Any) -> None:
        """Tell vLLM which merged layer stands for which of the author's, before any layer is built.

        A token table or output projection of the author's own making stays as it is; then there is no path of a head.
        """
        paths = {type(op): op.path for op in self.plan.ops if isinstance(op, Embed | Head)}
        self.embed_path = paths.get(Embed) or name_of(author, table_of(author))
        self.head_path = paths.get(Head, "")
        self.packed_modules_mapping = packed_names(self.plan.ops)
        known = ((paths.get(Embed), "input_embeddings"), (paths.get(Head), "output_embeddings"))
        self.embedding_modules = {path.rpartition(".")[2]: name for path, name in known if path}
        if vllm_config.quant_config is not None:
            vllm_config.quant_config.packed_modules_mapping.update(self.packed_modules_mapping)

    def _base(self) -> nn.Module:
        """The base model; the author's whole model where that is one."""
        path = self.plan.wrapper.base
        return self.get_submodule(path) if path else self.author[0]

    def _unread(self, before: torch.Tensor) -> dict[str, Any]:
        """What a base model behind the first stage is called with, though it reads none of it."""
        ids = torch.zeros(1, len(before), dtype=torch.int64, device=before.device)
        return unread(self.plan, self._base(), {"inputs_embeds": before[None]}, ids)

    def _adopt(self, author: nn.Module) -> None:
        """Take over everything the author's wrapper holds, under the same names, and go on holding it together."""
        self._modules.update(author._modules)
        self._parameters.update(author._parameters)
        self._buffers.update(author._buffers)
        self._non_persistent_buffers_set.update(author._non_persistent_buffers_set)
        for kind in ("_modules", "_parameters", "_buffers"):  # what is exchanged here is exchanged there
            author.__dict__[kind] = self.__dict__[kind]

    def _head(self) -> Any:
        return self.get_submodule(self.head_path)

    def _project(self, hidden: torch.Tensor) -> torch.Tensor:
        head = self._head()
        rows = hidden.flatten(0, -2)  # a wrapper may ask for several logits of a token
        logits: torch.Tensor = self.logits_processor(head, rows, getattr(head, "bias", None))
        return logits.reshape(*hidden.shape[:-1], logits.shape[-1])


load_compiled(TransformersForCausalLM)


def _build(prepared: Prepared, vllm_config: Any, prefix: str, *, apart: bool) -> None:
    """Turn the author's module into what the plan says, on this rank and stage."""
    author, plan = prepared.author, prepared.plan
    rank, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    site = Site(author, vllm_config, vllm_config.quant_config, prefix, rank, ranks, apart=apart)
    device = torch.get_default_device()
    move_values(author, device)
    absent = cut(plan, author)
    authors = list(author.named_modules())
    build(plan, prepared.classes, site, absent)
    materialise(authors, author, device)
    tie(plan, author)


def _constants(base: nn.Module) -> dict[str, Any]:
    """What is always said to the base model, as far as it listens: vLLM has the cache."""
    parameters = inspect.signature(base.forward).parameters.values()
    listens = any(p.name == "use_cache" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return {"use_cache": False} if listens else {}
