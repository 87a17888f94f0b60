"""Edits of a recovered method: gathered first, applied last, never one over another."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise

from hfspeed.source.fit import fitted
from hfspeed.source.recovered import Recovered, is_elif
from hfspeed.source.signature import parameter


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str
    rank: int = 0


class Edits:
    """Gathers edits against the author's text; `apply` carries them out and drops inert decorators.

    Positions are those of the recovered text throughout, so the order of the calls does not matter,
    but for several insertions at one statement, which come out in the order they were asked for.
    """

    def __init__(self, recovered: Recovered) -> None:
        self.recovered = recovered
        self._edits: list[_Edit] = []
        self._deleted: list[ast.stmt] = []
        self._erased: list[ast.stmt] = []
        self._broken: list[list[ast.stmt]] = []
        self._filled: list[list[ast.stmt]] = []
        self._parameters: set[str] = set()

    def replace(self, node: ast.AST, text: str) -> None:
        """Put ``text`` where ``node`` stands, in parentheses if the place asks for them."""
        start, end = self.recovered.offsets(node)
        self._edits.append(_Edit(start, end, fitted(self.recovered, node, text)))

    def insert_before(self, stmt: ast.stmt, lines: str) -> None:
        """Put statements before ``stmt``, at its indentation; ``lines`` are written from column 0."""
        block = self._block(stmt)
        self._filled.append(block)
        start = self._start(stmt)
        if self._begins_line(start):
            white, at = self._white(start), self._line_start(start)
            self._edits.append(_Edit(at, at, f"{white}{_shifted(lines, white)}\n"))
            return
        self._break(block)
        white = self._deeper(block)
        self._edits.append(_Edit(start, start, f"{_shifted(lines, white)}\n{white}"))

    def insert_after(self, stmt: ast.stmt, lines: str) -> None:
        """Put statements after ``stmt`` and the comment on its last line, at its indentation."""
        block = self._block(stmt)
        index = next(i for i, other in enumerate(block) if other is stmt)
        if index + 1 < len(block) and not self._begins_line(self._start(block[index + 1])):
            self.insert_before(block[index + 1], lines)
            return
        self._filled.append(block)
        if not self._begins_line(self._start(block[0])):
            self._break(block)
        white = self._deeper(block)
        at = self._line_end(self.recovered.offsets(stmt)[1])
        # Several blocks may end on this line; what belongs to the inner one comes first.
        self._edits.append(_Edit(at, at, f"{white}{_shifted(lines, white)}\n", -1 - len(white)))

    def delete(self, stmt: ast.stmt) -> None:
        """Take ``stmt`` away; a block that loses all its statements keeps a ``pass``."""
        self._block(stmt)
        self._deleted.append(stmt)

    def erase(self, stmt: ast.stmt) -> None:
        """As `delete`, with the comment above it and the blank lines that would then be doubled."""
        self.delete(stmt)
        self._erased.append(stmt)

    def insert_parameter(self, name: str, annotation: str | None = None, default: str | None = None) -> None:
        """Add a parameter after all others but ``**kwargs``.

        Raises:
            ValueError: a parameter or an earlier insertion has that name.
        """
        if name in self._parameters:
            raise ValueError(f"a parameter `{name}` is inserted twice")
        offset, text = parameter(self.recovered, name, annotation, default)
        self._parameters.add(name)
        self._edits.append(_Edit(offset, offset, text))

    def append_argument(self, call: ast.Call, text: str) -> None:
        """Add an argument behind all others of a call."""
        end = self.recovered.offsets(call)[1] - 1
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        last = max((self.recovered.offsets(one)[1] for one in given), default=end)
        tail = re.sub("#.*", "", self.recovered.text[last:end])
        self._edits.append(_Edit(end, end, text if not given or "," in tail else f", {text}"))

    def apply(self) -> str:
        """The edited text.

        Raises:
            ValueError: two edits overlap, or the result is not one function definition.
        """
        edits = [*self._edits, *self._decorators(), *self._breaks(), *self._deletions()]
        whole, text, at = self.recovered.text + "\n", "", 0
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end, edit.rank)):
            if edit.start < at:
                line = self.recovered.line + self.recovered.text[: edit.start].count("\n")
                raise ValueError(f"edits overlap at {self.recovered.file}:{line}")
            text += whole[at : edit.start] + edit.text
            at = edit.end
        return self._checked((text + whole[at:]).rstrip("\n"))

    def _checked(self, text: str) -> str:
        where = f"{self.recovered.cls_name}.{self.recovered.tree.name}"
        try:
            body = ast.parse(text).body
        except SyntaxError as error:
            raise ValueError(f"the edited {where} does not parse: {error}\n{text}") from error
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
            raise ValueError(f"the edited {where} is no single definition:\n{text}")
        return text

    # where things stand

    def _block(self, stmt: ast.stmt) -> list[ast.stmt]:
        if is_elif(self.recovered, stmt):
            raise ValueError(f"no statement can stand beside an `elif`: {self.recovered.place(stmt)}")
        return self.recovered.block_of(stmt)

    def _start(self, stmt: ast.stmt) -> int:
        start = self.recovered.offsets(stmt)[0]
        decorators = getattr(stmt, "decorator_list", [])
        if decorators:
            start = self.recovered.text.rfind("@", 0, self.recovered.offsets(decorators[0])[0])
        return start

    def _white(self, offset: int) -> str:
        """The white space at the beginning of the line of ``offset``."""
        line = self.recovered.text[self._line_start(offset) :]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def _begins_line(self, offset: int) -> bool:
        return not self.recovered.text[self._line_start(offset) : offset].strip()

    def _line_start(self, offset: int) -> int:
        return self.recovered.text.rfind("\n", 0, offset) + 1

    def _line_end(self, offset: int) -> int:
        """Where the line after that of ``offset`` begins."""
        end = self.recovered.text.find("\n", offset)
        return (len(self.recovered.text) if end < 0 else end) + 1

    def _deeper(self, block: list[ast.stmt]) -> str:
        """Indentation for a block that so far stands on its header's line or shares a line."""
        first = self._start(block[0])
        if self._begins_line(first):
            return self._white(first)
        parent = self.recovered.parent_of(block[0])
        at = parent.pattern if isinstance(parent, ast.match_case) else parent
        assert at is not None
        return self._white(self.recovered.offsets(at)[0]) + "    "

    # what to do

    def _break(self, block: list[ast.stmt]) -> None:
        if not any(other is block for other in self._broken):
            self._broken.append(block)

    def _breaks(self) -> list[_Edit]:
        """Each statement of a broken block on its own line."""
        edits = []
        for block in self._broken:
            white = self._deeper(block)
            for stmt in block:
                start = self._start(stmt)
                if self._begins_line(start):
                    continue
                before = self.recovered.text[:start].rstrip(" \t;")
                edits.append(_Edit(len(before), start, f"\n{white}"))
        return edits

    def _deletions(self) -> list[_Edit]:
        edits = []
        for stmt in self._deleted:
            block = self._block(stmt)
            start, end = self._start(stmt), self.recovered.offsets(stmt)[1]
            rest = self.recovered.text[end : self._line_end(end)].split("#")[0].strip()
            alone = self._begins_line(start) and not rest
            if alone and not self._emptied(block, stmt):
                first, last = self._line_start(start), self._line_end(end)
                if any(stmt is other for other in self._erased):
                    first, last = self._with_comment(block, stmt, first, last)
                # what is inserted before the statement stands below its comment, which goes as well
                places = {one.start for one in self._edits if one.start == one.end}
                inside = sorted(place for place in places if first < place <= self._line_start(start))
                edits += [_Edit(*stretch, "") for stretch in pairwise([first, *inside, last])]
            else:
                edits.append(_Edit(start, end, "pass"))
        return edits

    def _with_comment(self, block: list[ast.stmt], stmt: ast.stmt, first: int, last: int) -> tuple[int, int]:
        """The stretch of lines with the comment above, and with the blank lines below if one is left above."""
        index = next(i for i, other in enumerate(block) if other is stmt)
        if index == 0:
            return first, last
        text, floor = self.recovered.text, self._line_end(self.recovered.offsets(block[index - 1])[1])
        while first > floor and text[self._line_start(first - 1) : first].lstrip().startswith("#"):
            first = self._line_start(first - 1)
        before = any(block[index - 1] is other for other in self._erased)
        if before or (first > floor and not text[self._line_start(first - 1) : first].strip()):
            while last < len(text) and not text[last : self._line_end(last)].strip():
                last = self._line_end(last)
        return first, last

    def _emptied(self, block: list[ast.stmt], stmt: ast.stmt) -> bool:
        """Whether ``stmt`` is the first of a block of which nothing would be left."""
        gone = all(any(other is dead for dead in self._deleted) for other in block)
        return gone and stmt is block[0] and not any(other is block for other in self._filled)

    def _decorators(self) -> list[_Edit]:
        tree, text = self.recovered.tree, self.recovered.text
        starts = [text.rfind("@", 0, self.recovered.offsets(d)[0]) for d in tree.decorator_list]
        starts.append(self.recovered.offsets(tree)[0])
        return [_Edit(self._line_start(starts[i]), self._line_start(starts[i + 1]), "") for i in self.recovered.inert]


def _shifted(lines: str, white: str) -> str:
    """``lines`` with ``white`` before all but the first, which is put in place by the caller."""
    return f"\n{white}".join(lines.strip("\n").split("\n"))
