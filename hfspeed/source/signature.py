"""Where a further parameter goes in a signature, and how it is written there."""

from __future__ import annotations

import ast
import io
import tokenize
from itertools import accumulate

from hfspeed.source.recovered import Recovered

_BLANK = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)


def parameter(recovered: Recovered, name: str, annotation: str | None, default: str | None) -> tuple[int, str]:
    """Offset and text that add ``name`` after all parameters but ``**kwargs``.

    Raises:
        ValueError: the name is taken, or the parameter would need a default value.
    """
    args = recovered.tree.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    whole = [*named, *(arg for arg in (args.vararg, args.kwarg) if arg)]
    where = f"{recovered.cls_name}.{recovered.tree.name}"
    if name in {arg.arg for arg in whole}:
        raise ValueError(f"{where} already has a parameter `{name}`")
    by_position = not args.kwonlyargs and not args.vararg
    if by_position and default is None and args.defaults:
        raise ValueError(f"parameter `{name}` of {where} follows defaults, so needs one")
    told = name + (f": {annotation}" if annotation else "")
    if default is not None:
        told += f" = {default}" if annotation else f"={default}"
    return _before_kwargs(recovered, args.kwarg, told) if args.kwarg else _last(recovered, told)


def _before_kwargs(recovered: Recovered, kwarg: ast.arg, told: str) -> tuple[int, str]:
    offset = recovered.text.rfind("**", 0, recovered.offsets(kwarg)[0])
    return offset, f"{told},{_gap(recovered, offset)}"


def _last(recovered: Recovered, told: str) -> tuple[int, str]:
    """After the last token before the closing parenthesis that is no comma or comment."""
    depth, end = 0, 0
    lines = recovered.text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    begins = recovered.offsets(recovered.tree)[0]
    for token in tokenize.generate_tokens(io.StringIO(recovered.text).readline):
        if starts[token.start[0] - 1] + token.start[1] < begins:
            continue  # a decorator
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        if depth == 0 and token.string == ")":
            break
        if depth > 0 and token.string != "," and token.type not in _BLANK:
            end = starts[token.end[0] - 1] + token.end[1]
    parameters = [*recovered.tree.args.posonlyargs, *recovered.tree.args.args]
    last = max(recovered.offsets(arg)[0] for arg in parameters)
    return end, f",{_gap(recovered, last)}{told}"


def _gap(recovered: Recovered, offset: int) -> str:
    """A line break and indentation if what stands at ``offset`` is first on its line, else a space."""
    line = recovered.text[recovered.text.rfind("\n", 0, offset) + 1 : offset]
    before = line.rstrip("*")
    return " " if before.strip() or not before else f"\n{before}"
