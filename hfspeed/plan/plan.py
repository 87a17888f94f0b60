"""The plan: what every module path becomes, where weights go, where stages are cut, and the proofs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hfspeed.plan.ops import Op
from hfspeed.plan.proof import Proof
from hfspeed.plan.weights import Tie, Weight
from hfspeed.refusal import Refusal


@dataclass(frozen=True)
class Forward:
    """One rewritten method of one class: the author's class with a new ``forward``, as text.

    A class with several rewritten methods has one `Forward` for each, all of one ``name`` and with the same paths.

    Attributes:
        name: the emitted class (the author's class name; a number follows when one class has several forms).
        module: the author's importable module, e.g. ``transformers.models.tiny.modeling_tiny``.
        base: the author's class in it.
        text: the whole ``def`` with its decorators, dedented, as emitted.
        notes: what was changed, one phrase each (``"q_proj + k_proj + v_proj -> qkv_proj"``).
        paths: the module paths that get this class.
        promised: names on ``self`` that ops must provide (law 6).
        method: the method's name.
    """

    name: str
    module: str
    base: str
    text: str
    notes: tuple[str, ...]
    paths: tuple[str, ...]
    promised: tuple[str, ...]
    method: str = "forward"


@dataclass(frozen=True)
class Stages:
    """Where pipeline stages may be cut.

    Attributes:
        decoder: path of the module that loops over the layers.
        layers: path of the list.
        count: number of layers.
        carried: the one value that crosses a cut (a local name of the decoder's forward).
        tuple_output: a layer returns a tuple whose first element is the carried value.
        rest: how many further elements that tuple has; where a layer is elsewhere they are ``None``.
        first: paths that only the first stage needs (the token table).
        last: paths that only the last stage needs (final norm).
    The decoder's emitted forward takes ``intermediate`` (``[batch, tokens, size]`` or ``None``): the carried
    value from the stage before. It returns the bare carried value where ``self.hands_on`` is true.
    """

    decoder: str
    layers: str
    count: int
    carried: str
    tuple_output: bool
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    rest: int = 0


@dataclass(frozen=True)
class Ending:
    """Where a base model ends that goes on to make logits: its rewritten forward returns hidden states there.

    Logits come from the author's own forward as it was, with ``at`` given hidden states, and zeros instead of modules
    that only lead to them; every hidden state is then a sequence of its own.

    Attributes:
        at: path of the module at whose call it ends.
        given: hidden states are the first thing that ``at`` is called with; else they are what it gives.
        absent: the modules that are called before, and the shapes of what each gives, as in `Keep`; ``B`` is the
            number of sequences, ``T`` that of tokens in one.
    """

    at: str
    given: bool
    absent: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Wrapper:
    """What the ``ForCausalLM`` class does around its base model.

    Attributes:
        base: path of the base model on the wrapper (``model``).
        keywords: names the base model takes from us (``input_ids``, ``position_ids``, ``inputs_embeds``; and
            ``token_positions``, the same as ``position_ids``, where its rewritten forward has that parameter).
        head: path of the output projection.
        after: the operations between head and logits, in words (``("/ 3.0", "tanh", "* 4.0")``).
        interface: attention goes through transformers' attention interface; else the author's module is built with
            the attention that is its default.
        first_position: the number that the author gives the first token of a sequence. Where it is not 0, positions
            are made of token ids by the author, who may leave out padding; here every token of a prompt counts.
        limit: the longest sequence, in tokens, for which the author's code computes what it computes for short ones; 0
            for any. Longer ones would change it for all that run beside them, so none may be.
        room: the longest sequence, in tokens, whose positions the model has rows for, where it looks them up in a
            table; 0 for any. A longer one would fail.
        tokens_first: hidden states are ``[tokens, 1, size]``.
        bare: the base model gives the hidden states themselves, and not something that holds them.
        parts: how many values the plain tuple has that the base model gives, hidden states first; 0 if it is none.
        ids: what the base model calls its token ids.
        constants: names and literals of plain values that the wrapper hands to the base model.
        ending: where a base model ends that makes logits itself. Then ``base`` may be empty: it is the whole model.
    """

    base: str
    keywords: tuple[str, ...]
    head: str
    after: tuple[str, ...] = ()
    interface: bool = True
    first_position: int = 0
    bare: bool = False
    limit: int = 0
    tokens_first: bool = False
    parts: int = 0
    ids: str = "input_ids"
    constants: tuple[tuple[str, str], ...] = ()
    ending: Ending | None = None
    room: int = 0


@dataclass(frozen=True)
class Plan:
    """Everything that was decided about one model. Frozen; independent of the number of ranks.

    Attributes:
        architecture: the author's ``ForCausalLM`` class name.
        module: its importable module.
        size: width of the residual stream.
        ops: one op per claimed path, in module order.
        weights / ties: every parameter's destination.
        forwards: the classes to emit.
        stages: ``None`` when the model cannot be cut; a refusal says why.
        tensor: whether heads can be split over ranks; when false a refusal says why.
        ignorable: regular expressions of checkpoint names that the model declares ignorable.
    """

    architecture: str
    module: str
    size: int
    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    ties: tuple[Tie, ...]
    forwards: tuple[Forward, ...]
    wrapper: Wrapper
    stages: Stages | None
    tensor: bool
    proofs: tuple[Proof, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    ignorable: tuple[str, ...] = ()

    def with_proofs(self, *proofs: Proof) -> Plan:
        """The same plan with more proofs."""
        return replace(self, proofs=self.proofs + proofs)

    def with_refusals(self, *refusals: Refusal) -> Plan:
        """The same plan with more refusals."""
        return replace(self, refusals=self.refusals + refusals)
