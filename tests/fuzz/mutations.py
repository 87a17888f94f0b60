"""Ways to break a Python file: its tokens, lines, encoding and shape."""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
import warnings
from collections.abc import Callable

PIECES = [
    *("(", ")", "[", "]", "{", "}", ":", ",", "'''", '"', "\\\n", "\t", "\f", "\x00", "#", "\ufeff", "\u2028", "é"),
    *("    ", "\n", "self", "self.", "**kwargs", "*", "lambda: ", "await ", "yield ", ":=", "@", "None", "1e999"),
    *("# noqa: HFS101\n", "# hfspeed: ignore[", "# hfspeed: disable\n", "# hfspeed: noqa\n", "class A(A):\n"),
    *("def forward(self, x, **kwargs):\n", "if self.training:\n", "match x:\n    case _:\n        pass\n", "-" * 50),
    *("torch.softmax(q @ k.mT, -1) @ v", "ALL_ATTENTION_FUNCTIONS", "F.linear(x, self.q_proj.weight)", "(" * 200),
    *("async def ", "async for x in y:\n", "global x\n", "nonlocal x\n", "del self.x\n", "# type: ignore\n", "\r"),
    *("%% if x", "{{ x }}", "<<<<<<< HEAD\n", "=======\n", ">>>>>>> main\n", "f'{x!r:>{w}}'", "b'\\xff'", "0x", "1_0"),
    *("_tied_weights_keys = ['a']\n", "self.register_buffer('x', torch.arange(3))\n", "except* E:\n", "x: int\n"),
    *("for e in self.experts:\n", "if x.sum() > 0:\n", "x.item()", "print(x)\n", "from . import x\n", "import x.y\n"),
]  # fmt: skip
SCRIPTS = "éßøжשع文字한🙂🏳️‍🌈\u200b\u200e\u202e\u0301\ud800\U0010ffff𝐱𝔞ªﬁ"
KEYWORDS = ("if", "for", "while", "with", "try", "class", "def", "return", "lambda", "not", "in", "is", "and", "or")
ODD = ["latin-1", "utf-16", "utf-8-sig", "cp1252", "shift_jis", "utf-7", "no-such-thing", "rot13", "hex", "utf_8_sig"]
WORD = re.compile(r"\w+")


def cut(text: str, chance: random.Random) -> str:
    """A stretch is gone."""
    start, end = _stretch(text, chance)
    return text[:start] + text[end:]


def doubled(text: str, chance: random.Random) -> str:
    """A stretch stands twice."""
    start, end = _stretch(text, chance)
    return text[:end] + text[start:end] + text[end:]


def put_in(text: str, chance: random.Random) -> str:
    """Something that does not belong there, now and then in place of something else."""
    start, end = _stretch(text, chance)
    return text[:start] + chance.choice(PIECES) + text[end if chance.random() < 0.3 else start :]


def renamed(text: str, chance: random.Random) -> str:
    """A word is another, once or wherever it stands; names come to clash, classes to derive from themselves."""
    words = WORD.findall(text)
    if not words:
        return text
    old, new = chance.choice(words), chance.choice([*words, *KEYWORDS])
    return re.sub(rf"\b{old}\b", new, text, count=chance.choice((0, 1)))


def tokens(text: str, chance: random.Random) -> str:
    """Two tokens of a line have changed places, or one is gone, or stands twice."""
    lines = text.split("\n")
    row = chance.randrange(len(lines))
    try:
        found = [(one.start[1], one.end[1]) for one in tokenize.generate_tokens(io.StringIO(lines[row]).readline)]
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return text
    spans = [span for span in found if span[1] > span[0]]
    if len(spans) < 2:
        return text
    (a, b), (c, d) = sorted(chance.sample(spans, 2))
    line = lines[row]
    kind = chance.randrange(3)
    swapped = line[:a] + line[c:d] + line[b:c] + line[a:b] + line[d:]
    lines[row] = (swapped, line[:a] + line[b:], line[:b] + line[a:b] + line[b:])[kind]
    return "\n".join(lines)


def lines(text: str, chance: random.Random) -> str:
    """Lines that have changed places, their indentation, or are gone."""
    found = text.split("\n")
    first, second = (chance.randrange(len(found)) for _ in range(2))
    kind = chance.randrange(5)
    if kind == 0:
        found[first], found[second] = found[second], found[first]
    elif kind == 1:
        del found[first : first + chance.choice((1, 1, 3, 20))]
    elif kind == 2:
        found[first] = " " * chance.choice((1, 4, 8, 40)) + found[first]
    elif kind == 3:
        found[first] = found[first].lstrip() if chance.random() < 0.5 else "\t" + found[first]
    else:
        found[first:first] = found[second : second + 10]
    return "\n".join(found)


def deep(text: str, chance: random.Random) -> str:
    """Something nested as deep as, or deeper than, a parser takes, in place of an expression or a statement."""
    depth = chance.choice((10, 60, 95, 190, 1000, 5000))
    inner = chance.choice(("x", "self.q_proj(x)", "torch.softmax(q @ k.mT, -1)", "F.linear(x, self.o_proj.weight)"))
    expression = chance.choice((
        "(" * depth + inner + ")" * depth, "[" * depth + inner + "]" * depth, "f(" * depth + inner + ")" * depth,
        "-" * depth + inner, "not " * depth + inner, "lambda: " * depth + inner, inner + ".x" * depth,
        inner + "[0]" * depth, inner + "()" * depth, " + ".join([inner] * depth), " @ ".join(["x"] * depth),
        " if x else ".join([inner] * (depth | 1)), ", ".join([inner] * depth), " < ".join(["x"] * depth),
        "{0: " * depth + inner + "}" * depth, "*" * depth + inner, "9" * depth, "'" + "a" * depth + "'",
        " ".join(["'a'"] * depth), "f'{" * min(depth, 90) + inner + "}'" * min(depth, 90), "await " * depth + inner,
    ))  # fmt: skip
    statement = chance.choice((
        "".join("    " * at + "if x:\n" for at in range(min(depth, 105))) + "    " * min(depth, 105) + "pass\n",
        "if x:\n    pass\n" + f"elif {inner}:\n    pass\n" * depth, " = ".join(["x"] * depth) + f" = {inner}\n",
        "@x\n" * depth + "class Deep(nn.Module):\n    pass\n", f"x = {inner}\n" * depth, "x, " * depth + f"= {inner}\n",
        "".join(f"class A{at}(A{at + 1}):\n    pass\n" for at in range(depth)) + f"class A{depth}(A0):\n    pass\n",
        "".join("    " * at + f"class A{at}:\n" for at in range(min(depth, 95))) + "    " * min(depth, 95) + "x = 1\n",
    ))  # fmt: skip
    found = list(re.finditer(r"(?<== )[^\n]+", text))
    if found and chance.random() < 0.5:
        one = chance.choice(found)
        return text[: one.start()] + expression + text[one.end() :]
    at = chance.choice([0, *(one.start() + 1 for one in re.finditer(r"\n(?=\S)", text))])
    return text[:at] + chance.choice((statement, f"x = {expression}\n")) + text[at:]


def unicode(text: str, chance: random.Random) -> str:
    """Letters of other scripts, characters without width, half of a pair, in names, comments and strings."""
    for _ in range(chance.choice((1, 1, 5, 50))):
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(SCRIPTS) + text[at:]
    return text


def truncated(text: str, chance: random.Random) -> str:
    """The file ends, or begins, in the middle."""
    at = chance.randint(0, len(text))
    return text[:at] if chance.random() < 0.7 else text[at:]


def grafted(text: str, chance: random.Random) -> str:
    """An expression or a statement is another one of the file, is gone, or stands twice; it mostly parses then."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    kind = chance.choice((ast.expr, ast.expr, ast.stmt))
    found = [node for node in nodes if isinstance(node, kind) and text.isascii()]
    if len(found) < 2:
        return text
    into, other = (_span(text, one) for one in chance.sample(found, 2))
    if kind is ast.expr:
        return f"{text[: into[0]]}({text[other[0] : other[1]]}){text[into[1] :]}"
    what = chance.choice(("pass", text[into[0] : into[1]], text[other[0] : other[1]].split("\n", 1)[0]))
    again = text[into[0] : into[1]] if chance.random() < 0.3 and "\n" not in text[into[0] : into[1]] else ""
    return f"{text[: into[0]]}{what}{'; ' if again else ''}{again}{text[into[1] :]}"


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    """Where a node stands in a text of ASCII alone."""
    starts = [0, *(one.end() for one in re.finditer("\n", text))]
    at = starts[getattr(node, "lineno", 1) - 1] + getattr(node, "col_offset", 0)
    return at, starts[getattr(node, "end_lineno", 1) - 1] + getattr(node, "end_col_offset", 0)


KINDS: list[Callable[[str, random.Random], str]] = [
    cut, doubled, put_in, renamed, tokens, tokens, lines, deep, unicode, truncated,
    renamed, renamed, renamed, grafted, grafted, grafted, grafted, grafted, grafted,
]  # fmt: skip


def encoded(text: str, chance: random.Random) -> bytes:
    """The text as bytes; a tenth of the time with other line ends, another encoding, or bytes that are no text."""
    kind = chance.random()
    if kind > 0.1:
        return text.encode("utf-8", "surrogatepass")
    name = chance.choice(ODD)
    declared = f"# -*- coding: {name} -*-\n{text}"
    if kind < 0.03:
        end = chance.choice(("\r\n", "\r", "\n\r", "\r\n\n"))
        return text.replace("\n", end, -1 if chance.random() < 0.7 else 10).encode("utf-8", "surrogatepass")
    if kind < 0.05:
        return declared.encode("utf-8", "surrogatepass")
    if kind < 0.07:
        known = name if name in ("latin-1", "utf-16", "utf-8-sig", "cp1252", "shift_jis") else "utf-8"
        return (declared if chance.random() < 0.7 else text).encode(known, "replace")
    content = text.encode("utf-8", "surrogatepass")
    at = chance.randint(0, len(content))
    junk = chance.choice((b"\x00", b"\x00" * 40, b"\xff\xfe", b"\x80", b"\xed\xa0\x80", chance.randbytes(20)))
    return content[:at] + junk + content[at if kind < 0.09 else min(len(content), at + 30) :]


def mutated(text: str, chance: random.Random) -> bytes:
    """``text`` with one to eight things broken."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
        text = chance.choice(KINDS)(text, chance)
    return encoded(text, chance)


def _stretch(text: str, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, len(text))
    return start, min(len(text), start + chance.choice((0, 1, 5, 40, 400)))
