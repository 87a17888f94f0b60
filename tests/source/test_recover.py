"""A method's text is its author's, to the byte; everything else is refused at its line."""

from __future__ import annotations

import ast
import dis
import inspect
import sys
from pathlib import Path
from types import CodeType

import pytest
from transformers.models.cohere import modeling_cohere
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama

from hfspeed.refusal import Reason, Refused
from hfspeed.source import Recovered, recover
from hfspeed.source.unwrap import layers

sys.path.insert(0, str(Path(__file__).parent))
from authored import author, forward

REAL = [
    modeling_llama.LlamaAttention,
    modeling_llama.LlamaModel,
    modeling_llama.LlamaRotaryEmbedding,
    modeling_gemma2.Gemma2Model,
    modeling_gpt_neox.GPTNeoXAttention,
    modeling_cohere.CohereAttention,
]


def refused(cls: type) -> tuple[Reason, str, int]:
    with pytest.raises(Refused) as caught:
        recover(cls)
    refusal = caught.value.refusal
    return refusal.reason, refusal.found, refusal.place.line if refusal.place else 0


@pytest.mark.parametrize("cls", REAL, ids=lambda cls: cls.__name__)
def test_the_text_is_the_author_s(cls: type) -> None:
    recovered = recover(cls)
    lines = Path(recovered.file).read_text().split("\n")
    for number, line in enumerate(recovered.text.split("\n")):
        taken = recovered.removed[number]
        original = lines[recovered.line - 1 + number]
        assert original[taken:] == line
        assert not original[:taken].strip()
    assert recovered.tree.name == "forward"
    assert (recovered.cls_module, recovered.cls_name, recovered.self_name) == (cls.__module__, cls.__name__, "self")


def codes(code: CodeType) -> list[CodeType]:
    return [code, *(c for constant in code.co_consts if isinstance(constant, CodeType) for c in codes(constant))]


@pytest.mark.parametrize("cls", REAL, ids=lambda cls: cls.__name__)
def test_every_call_that_runs_is_found_in_the_tree(cls: type) -> None:
    recovered = recover(cls)
    own = layers(inspect.getattr_static(cls, "forward"), "forward")[-1]
    wanted = {"CALL": ast.Call, "CALL_FUNCTION_EX": ast.Call, "CALL_KW": ast.Call, "BINARY_OP": ast.BinOp}
    found = 0
    for code in codes(own.__code__):
        for step in dis.get_instructions(code):
            if step.opname in wanted and step.positions and step.positions.lineno is not None:
                place = step.positions
                node = recovered.node_at(place.lineno, place.end_lineno, place.col_offset, place.end_col_offset)
                assert isinstance(node, wanted[step.opname]), (step, node)
                found += 1
    assert found


def at(recovered: Recovered, text: str, kind: type[ast.AST]) -> ast.AST:
    return next(n for n in ast.walk(recovered.tree) if isinstance(n, kind) and recovered.segment(n) == text)


def test_positions_in_chains_and_parentheses(tmp_path: Path) -> None:
    recovered = forward(
        tmp_path,
        """
        def forward(self, x):
            y = (
                self.a(x)
                .view(1, 2)
                .transpose(0, 1)
            )
            é = "ünï"; z = (x + y) * (self.a(é) - (y))
            return f(
                z,
            )
        """,
    )
    outer = next(n for n in ast.walk(recovered.tree) if isinstance(n, ast.Call) and n.end_lineno == 5)
    # what the interpreter records for a chained method: from its name to the end of the whole call
    assert recovered.node_at(6, 6, 13, 28) is outer
    assert recovered.node_at(4, 6, 12, 28) is outer
    product = at(recovered, "(x + y) * (self.a(é) - (y))", ast.BinOp)
    place = recovered.place(product)
    assert (place.line, place.column, place.end_column) == (8, 24, 51)
    assert recovered.node_at(8, 8, 26, 54) is product
    difference = at(recovered, "self.a(é) - (y)", ast.BinOp)
    assert recovered.node_at(8, 8, 37, 53) is difference
    assert recovered.statement_of(difference) is recovered.tree.body[2]
    assert recovered.block_of(recovered.tree.body[2]) is recovered.tree.body
    assert recovered.node_at(9999, 9999, 0, 1) is None
    assert recovered.node_at(8, 8, 0, 1) is None


def test_layout_comments_tabs_and_strings_survive(tmp_path: Path) -> None:
    module = author(
        tmp_path,
        "class Outer:\n\tclass M:\n\t\t# before\n\t\tdef forward(self, x):  # here\n"
        '\t\t\t"""One\n  two"""\n# at the margin\n\t\t\ty = (x +\n  1)\n\n\t\t\treturn """\n\t\ta\n""", y\n',
        raw=True,
    )
    recovered = recover(module.Outer.M)
    assert recovered.text == (
        'def forward(self, x):  # here\n\t"""One\n  two"""\n# at the margin\n\ty = (x +\n1)\n\n'
        '\treturn """\n\t\ta\n""", y'
    )
    assert recovered.cls_name == "Outer.M"
    namespace: dict[str, object] = {}
    exec(recovered.text, namespace)
    assert namespace["forward"](None, 1) == module.Outer.M().forward(1)  # type: ignore[operator]


def test_windows_line_ends(tmp_path: Path) -> None:
    module = author(tmp_path, "class M:\r\n    def forward(self, x):\r\n        return x\r\n", raw=True)
    assert recover(module.M).text == "def forward(self, x):\n    return x"


def test_the_defining_class_and_its_module(tmp_path: Path) -> None:
    parent = author(tmp_path, "class Parent:\n    def forward(self): return 1\n")
    child = author(tmp_path, f"from {parent.__name__} import Parent\nclass Child(Parent):\n    pass\n")
    recovered = recover(child.Child)
    assert (recovered.cls_module, recovered.cls_name) == (parent.__name__, "Parent")
    assert recovered.module == parent.__name__


DECORATED = """
    import functools

    def wraps(f):
        @functools.wraps(f)
        def wrapper(self, *args):
            return f(self, *args) + 1
        return wrapper

    def configured(n):
        def decorate(f):
            def inner(self, *args):
                return f(self, *args) + n
            return inner
        return decorate

    def documents(f=None, *, note=""):
        def same(g):
            g.__doc__ = note
            return g
        return same(f) if f else same

    class Context:
        def __call__(self, f):
            @functools.wraps(f)
            def entered(*args):
                return f(*args)
            return entered

    class M:
        @documents(note="(a,\\n b)")
        @wraps
        # a comment
        @documents
        @configured(10)
        @Context()
        def forward(self, x):
            return x
    """


def test_decorators_that_left_no_wrapper_are_known(tmp_path: Path) -> None:
    module = author(tmp_path, DECORATED)
    assert module.M().forward(1) == 12
    recovered = recover(module.M)
    assert recovered.text.startswith("@documents(note=")
    assert recovered.inert == (0, 2)


def test_a_decorator_is_kept_when_in_doubt(tmp_path: Path) -> None:
    module = author(
        tmp_path,
        """
        import functools
        def one(f):
            @functools.wraps(f)
            def wrapper(self): return f(self)
            return wrapper
        def other(f): return one(f)
        def maybe(f): return f if one else one(f)
        class M:
            @maybe
            @other
            def forward(self): return 1
        """,
    )
    assert recover(module.M).inert == ()


def test_real_decorators() -> None:
    recovered = recover(modeling_llama.LlamaModel)
    names = [ast.unparse(d) for d in recovered.tree.decorator_list]
    assert [names[index] for index in recovered.inert] == ["auto_docstring"]
    assert recover(modeling_llama.LlamaRotaryEmbedding).inert == ()


def test_what_is_refused(tmp_path: Path) -> None:
    module = author(
        tmp_path,
        """\
        class Lambda:
            forward = lambda self, x: x
        class Async:
            async def forward(self, x): return x
        class Generator:
            def forward(self, x): yield x
        class Static:
            @staticmethod
            def forward(x): return x
        class Alone:
            def forward(): return 1
        def elsewhere(self): return 1
        class Replaced:
            forward = elsewhere
        def make(k):
            class Closure:
                def forward(self, x): return x * k
            class Own:
                def forward(self, x): return __class__, super().__init__()
            return Closure, Own
        Closure, Own = make(2)
        class Nothing: pass
        """,
    )
    syntax = Reason.UNSUPPORTED_SYNTAX
    assert refused(module.Lambda) == (syntax, "`forward` is a lambda", 2)
    assert refused(module.Async) == (syntax, "`forward` is a coroutine", 4)
    assert refused(module.Generator) == (syntax, "`forward` is a generator", 6)
    assert refused(module.Static)[0] is Reason.NO_SOURCE
    assert refused(module.Alone) == (syntax, "`forward` is without a first parameter for the module", 11)
    assert refused(module.Replaced) == (syntax, "`forward` is `elsewhere`, put in its place", 12)
    assert refused(module.Closure) == (Reason.CLOSURE, "`forward` reads `k` of an enclosing function", 17)
    assert refused(module.Nothing)[0] is Reason.NO_SOURCE
    assert recover(module.Own).text == "def forward(self, x): return __class__, super().__init__()"


def test_code_without_a_file_is_refused() -> None:
    namespace: dict[str, object] = {"__name__": __name__}
    exec("class M:\n    def forward(self): return 1", namespace)
    cls = namespace["M"]
    assert isinstance(cls, type)
    assert refused(cls)[0] is Reason.NO_SOURCE


@pytest.mark.parametrize("change", [("* 2", "* 3"), ("x.a", "x.b"), ("def forward", "\n    def forward")])
def test_a_file_that_changed_since_its_import_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    module = author(tmp_path, "class M:\n    def forward(self, x):\n        return x.a * 2\n")
    recover(module.M)
    path = Path(str(module.__file__))
    path.write_text(path.read_text().replace(*change))
    assert refused(module.M)[:2] == (Reason.NO_SOURCE, "the file changed since it was imported")


def test_the_right_one_of_several_definitions(tmp_path: Path) -> None:
    module = author(
        tmp_path,
        """
        class M:
            if False:
                def forward(self): return 1
            else:
                def forward(self):
                    def forward(x): return x
                    return forward(2)
        class N:
            def forward(self): return 3
        """,
    )
    assert "forward(2)" in recover(module.M).text
    assert "3" in recover(module.N).text
