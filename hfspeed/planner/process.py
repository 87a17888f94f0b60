"""What an author's code asks the process that runs it: a server may answer otherwise than the proof did."""

from __future__ import annotations

import builtins
import copy
import dis
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import nn

from hfspeed.planner.build import build
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.surroundings import WORDS, Names, made_of_it
from hfspeed.refusal import Place, Reason, Refusal

HELP: Final = "let the answer follow from the configuration, the weights and the tokens alone"
ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
LOCALS: Final = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF"})
SAVED_BESIDE: Final = "generation_config"
"""What transformers reads from a file of its own when it loads a model; a server reads it for its users, if at all."""
Chain = tuple[bool, str, tuple[str, ...]]
"""Whether a name is global, the name, and the attributes that are read off it one after the other."""


def asked_of_process(small: Study) -> tuple[Refusal, ...]:
    """Refusals of lines that ask the process something while the small model is built or run.

    Only what is run counts: a branch for training may ask how many ranks there are. Helpers in the author's own files
    count as well, libraries do not; nor does what chooses, while a file is imported, whether a package is there.
    """
    found: dict[Place, Refusal] = {}
    folders = frozenset(_folders(small.model))
    _forget(small.model)

    def note(when: str, what: str, place: Place) -> None:
        told = f"`{what}` is asked while the model {when}, and a server may answer otherwise than this process"
        name = type(small.model).__name__
        found.setdefault(place, Refusal("model", Reason.VALUE_VARIES, told, name, place, help=HELP))

    with _Watch(folders, partial(note, "is built")).on():
        build(type(small.model), small.model.config, device="meta", interface=small.interface)
    for tokens in (TOKENS, 1):
        model = copy.deepcopy(small.fresh)
        given = prompt(model, tokens)
        with torch.no_grad(), arithmetic(torch.float64), _Watch(folders, partial(note, "runs")).on():
            try:
                model(**given)
            except AUTHOR_ERRORS:
                continue  # other proofs tell of it
    return tuple(found.values())


def _folders(model: nn.Module) -> Iterator[str]:
    """Where the code of the model lies: folders of the files of its classes, torch's and transformers' own left out."""
    for cls in authors(model):
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is not None:
            yield str(Path(file).parent)


def authors(model: nn.Module) -> dict[type[Any], None]:
    """The classes that a model is made of, torch's and transformers' own left out."""
    every = dict.fromkeys(cls for module in model.modules() for cls in type(module).__mro__)
    return {cls: None for cls in every if not _library(cls.__module__)}


def _library(name: str) -> bool:
    theirs = name.startswith("transformers.") and ".models." not in name
    return theirs or name.startswith("torch.") or name == "builtins"


def _forget(model: nn.Module) -> None:
    """Let functions of the author's that keep what they once found find it again."""
    for name in {cls.__module__ for module in model.modules() for cls in type(module).__mro__}:
        if not name.startswith(("torch.", "transformers.", "builtins")):
            for value in vars(sys.modules.get(name, builtins)).values():
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


class _Watch:
    """Follows the author's functions instruction by instruction where they have a name that could be the process's."""

    def __init__(self, folders: frozenset[str], note: Callable[[str, Place], None]) -> None:
        self.folders, self.note, self.names = folders, note, Names()
        self.known: dict[CodeType, dict[int, Chain]] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch while the block runs."""
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """A function begins; it is followed if it is the author's and may ask."""
        code = frame.f_code
        if code not in self.known:
            own = str(Path(code.co_filename).parent) in self.folders
            self.known[code] = _chains(code, self.suspects(code, frame.f_globals)) if own else {}
        if event != "call" or not self.known[code]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.step

    def step(self, frame: FrameType, event: str, _: Any) -> Any:
        """An instruction of such a function is about to run."""
        chain = self.known[frame.f_code].get(frame.f_lasti) if event == "opcode" else None
        if chain is not None and (what := self.asks(chain, frame)) is not None:
            self.note(what, Place(frame.f_code.co_filename, frame.f_lineno))
        return self.step

    def suspects(self, code: CodeType, known: Mapping[str, Any]) -> frozenset[str]:
        """Names in ``code`` that may lead to the process."""
        made = made_of_it(code.co_filename, str(known.get("__name__", "")))
        said, values = WORDS | {SAVED_BESIDE} | made, self.names.values
        return frozenset(n for n in code.co_names if n in said or id(known.get(n)) in values)

    def asks(self, chain: Chain, frame: FrameType) -> str | None:
        """What is asked of the process by reading a name and its attributes; ``None`` if it is something else."""
        is_global, first, rest = chain
        made = made_of_it(frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")))
        if found := [name for name in ((first, *rest) if is_global else rest) if name in made]:
            return found[0]
        if SAVED_BESIDE in rest and not is_global and isinstance(frame.f_locals.get(first), nn.Module):
            return ".".join((first, *rest))
        value = frame.f_globals.get(first, vars(builtins).get(first)) if is_global else frame.f_locals.get(first)
        return self.names.leads(value, first, rest)


def _chains(code: CodeType, suspects: frozenset[str]) -> dict[int, Chain]:
    """Where in ``code`` names are read that may be the process's, by offset."""
    if not suspects:
        return {}
    found: dict[int, Chain] = {}
    steps = list(dis.get_instructions(code))
    for number, one in enumerate(steps):
        if one.opname not in GLOBALS | LOCALS or not isinstance(one.argval, str):
            continue
        rest = []
        for later in steps[number + 1 :]:
            if later.opname not in ATTRIBUTES:
                break
            rest.append(str(later.argval))
        if not _harmless([one.argval, *rest][-1], steps[number + 1 + len(rest) :][:2]):
            found[one.offset] = (one.opname in GLOBALS, one.argval, tuple(rest))
    return found


def _harmless(name: str, after: list[dis.Instruction]) -> bool:
    """Whether a file looks itself up in ``sys.modules``, or only sets a variable of the environment."""
    itself = name == "modules" and any(one.argval == "__name__" for one in after[:1])
    return itself or (name == "environ" and [one.opname for one in after][-1:] == ["STORE_SUBSCR"])
