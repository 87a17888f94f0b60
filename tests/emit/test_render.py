"""The emitted module is readable, says where every name comes from, and means what its author meant."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from hfspeed.emit import emitted, render
from hfspeed.errors import PlanError, RefusedError, SubjectError
from hfspeed.plan import Forward, Plan, Wrapper
from hfspeed.source import Edits, recover

sys.path.insert(0, str(Path(__file__).parent.parent / "source"))
from authored import author


def forward(cls: type, text: str = "", name: str = "", notes: tuple[str, ...] = ("a + b -> ab",)) -> Forward:
    """A rewritten class whose text is the author's own, unless given."""
    body = textwrap.dedent(text).strip("\n") or Edits(recover(cls)).apply()
    return Forward(name or cls.__name__, cls.__module__, cls.__qualname__, body, notes, (), ())


def plan(*forwards: Forward, architecture: str = "TinyForCausalLM") -> Plan:
    wrapper = Wrapper("model", ("input_ids",), "lm_head")
    return Plan(architecture, "m", 8, (), (), (), forwards, wrapper, None, False)


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_a_whole_module(tmp_path: Path) -> None:
    tiny = author(
        tmp_path,
        '''
        import os
        import os.path as path
        from collections import abc
        from typing import Any, Callable

        def helper(x): return x + 1
        _private = 2

        class Block:
            def forward(self, x: Any, *, size: int = _private, **kwargs: "Callable") -> "abc.Sized":
                """Says
              something.
                """
                y: Missing = len(path.join("a", "b"))
                return [helper(i) + os.sep.count("/") for i in (x, y, size)]

        class Other(Block):
            def forward(self, x):
                return super().forward(x), __class__, isinstance(self, Block)
        ''',
        name="authored_tiny",
    )
    text = render(plan(forward(tiny.Block), forward(tiny.Other, notes=("one", 'two with """ and \\'))))
    assert text == dedent('''
        """TinyForCausalLM as hfspeed serves it; generated, do not edit."""

        from __future__ import annotations

        import os
        import posixpath as path
        from collections import abc
        import authored_tiny as author
        from authored_tiny import Any, Callable, _private, helper


        class Block(author.Block):
            """a + b -> ab."""

            def forward(self, x: Any, *, size: int = _private, **kwargs: "Callable") -> "abc.Sized":
                """Says
              something.
                """
                y: Missing = len(path.join("a", "b"))
                return [helper(i) + os.sep.count("/") for i in (x, y, size)]


        class Other(author.Other):
            """one; two with \\"\\"\\" and \\\\."""

            def forward(self, x):
                return super(author.Other, self).forward(x), author.Other, isinstance(self, author.Block)
        ''')
    module = emitted(plan(forward(tiny.Block), forward(tiny.Other)), tmp_path)
    ours, theirs = module.Other(), tiny.Other()
    assert ours.forward(1) == theirs.forward(1) == ([2 + 1, 4 + 1, 3 + 1], tiny.Other, True)
    assert module.Block.forward.__doc__ == tiny.Block.forward.__doc__


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    tiny = author(
        tmp_path, "def a(x): return x\nb = c = d = a\nclass M:\n    def forward(self, x): return a(b(c(d(x))))\n"
    )
    assert len({render(plan(forward(tiny.M))) for _ in range(5)}) == 1


def test_many_imports_are_wrapped_at_a_hundred_columns(tmp_path: Path) -> None:
    names = [f"rather_long_name_{i}" for i in range(20)]
    tiny = author(
        tmp_path,
        "\n".join(f"def {name}(x): return x" for name in names)
        + "\nclass M:\n    def forward(self, x): return "
        + "\\\n        + ".join(f"{name}(x)" for name in names),
    )
    text = render(plan(forward(tiny.M)))
    assert f"from {tiny.__name__} import (\n    rather_long_name_0, rather_long_name_1, rather_long_name_10," in text
    assert max(map(len, text.split("\n"))) <= 100
    assert emitted(plan(forward(tiny.M)), tmp_path).M().forward(1) == 20


def test_a_forward_that_another_module_defines(tmp_path: Path) -> None:
    author(
        tmp_path,
        """
        def scale(x): return 2 * x
        class Top:
            def forward(self, x): return x
        class Parent(Top):
            def forward(self, x): return scale(super().forward(x))
        """,
        name="authored_parent",
    )
    child = author(
        tmp_path,
        "from authored_parent import Parent\ndef scale(x): return 1000\nclass Child(Parent): pass\n",
        name="authored_child",
    )
    text = render(plan(forward(child.Child)))
    assert (
        "import authored_child as author\nimport authored_parent as author_2\nfrom authored_parent import scale\n"
        in text
    )
    assert "class Child(author.Child):" in text
    assert "return scale(super(author_2.Parent, self).forward(x))" in text
    assert emitted(plan(forward(child.Child)), tmp_path).Child().forward(3) == 6


def test_one_name_for_two_things(tmp_path: Path) -> None:
    one = author(tmp_path, "def f(x): return 1\nclass A:\n    def forward(self, x): return f(x)\n", name="authored_one")
    two = author(tmp_path, "def f(x): return 2\nclass B:\n    def forward(self, x): return f(x)\n", name="authored_two")
    both = plan(forward(one.A), forward(two.B))
    text = render(both)
    assert "return f(x)" in text
    assert "return author_2.f(x)" in text
    module = emitted(both, tmp_path)
    assert (module.A().forward(0), module.B().forward(0)) == (1, 2)


def test_the_author_s_classes_are_not_mistaken_for_emitted_ones(tmp_path: Path) -> None:
    tiny = author(
        tmp_path,
        """
        class Layer:
            def forward(self, x): return type(x) is Layer
        class Model:
            def forward(self, x: Layer = Layer()) -> Layer: return Layer().forward(x)
        """,
    )
    both = plan(forward(tiny.Layer), forward(tiny.Model))
    module = emitted(both, tmp_path)
    assert module.Model().forward() is True
    assert module.Model().forward(module.Layer()) is False
    assert "def forward(self, x: author.Layer = author.Layer()) -> author.Layer" in render(both)


def test_the_author_s_locals_may_be_called_author(tmp_path: Path) -> None:
    tiny = author(tmp_path, "class M:\n    def forward(self, author): return super().__hash__() and author\n")
    assert "import authored" in render(plan(forward(tiny.M)))
    assert emitted(plan(forward(tiny.M)), tmp_path).M().forward(5) == 5


def test_names_that_the_module_rebinds_are_read_there(tmp_path: Path) -> None:
    tiny = author(
        tmp_path,
        """
        count = 0
        def grow():
            global count
            count += 1
        class M:
            def forward(self):
                grow()
                return count
        """,
    )
    made = emitted(plan(forward(tiny.M)), tmp_path).M()
    assert [made.forward(), made.forward()] == [1, 2]


def test_names_of_the_class_in_a_decorator(tmp_path: Path) -> None:
    tiny = author(
        tmp_path,
        """
        import functools
        class M:
            def _twice(f):
                @functools.wraps(f)
                def wrapper(self, x): return 2 * f(self, x)
                return wrapper
            @_twice
            def forward(self, x): return x
        """,
    )
    assert "@author.M._twice\n" in render(plan(forward(tiny.M)))
    assert emitted(plan(forward(tiny.M)), tmp_path).M().forward(3) == 6


def test_several_forms_of_one_class(tmp_path: Path) -> None:
    tiny = author(tmp_path, "class M:\n    def forward(self): return super().__str__()\n")
    both = plan(forward(tiny.M), forward(tiny.M, "def forward(self): return 2", name="M2"))
    module = emitted(both, tmp_path)
    assert module.M2.__mro__[1] is tiny.M
    assert module.M2().forward() == 2
    with pytest.raises(PlanError, match="two classes named M"):
        render(plan(forward(tiny.M), forward(tiny.M)))


def test_private_names(tmp_path: Path) -> None:
    tiny = author(tmp_path, "class M:\n    def __init__(self): self.__n = 3\n    def forward(self): return self.__n\n")
    assert emitted(plan(forward(tiny.M)), tmp_path).M().forward() == 3
    with pytest.raises(RefusedError, match=r"`__n` is private to `M` and would mean another name in `M2`"):
        render(plan(forward(tiny.M, name="M2")))


def made_inside() -> type:
    class Inner:
        def forward(self) -> int:
            return 1

    return Inner


def test_what_is_refused(tmp_path: Path) -> None:
    tiny = author(
        tmp_path,
        """
        n = 1
        class M:
            def forward(self):
                global n
                n = 2
        class N:
            def forward(self):
                def inner(s): return super().__init__()
                return inner(self)
        def make():
            class Local:
                def forward(self): return 1
            return Local
        Local = make()
        """,
    )
    for cls, told in ((tiny.M, "`global n`"), (tiny.N, "`super()` in a nested function")):
        with pytest.raises(RefusedError) as caught:
            render(plan(forward(cls)))
        assert told in str(caught.value)
    local = Forward("Local", tiny.__name__, "Local", "def forward(self): return 1", (), (), ())
    with pytest.raises(RefusedError, match="cannot be named outside"):
        render(plan(local))


def test_plans_that_cannot_be(tmp_path: Path) -> None:
    tiny = author(tmp_path, "class M:\n    def forward(self): return 1\n")
    name = tiny.__name__
    for base, text, error, told in (
        ("Nobody", "def forward(self): pass", PlanError, f"{name} has no class Nobody"),
        ("M", "def forward(self) pass", PlanError, "does not parse"),
        ("M", "x = 1", PlanError, "no single `def forward`"),
        ("M", "def forward(): pass", PlanError, "takes no `self`"),
    ):
        with pytest.raises(error, match=told):
            render(plan(Forward("M", name, base, text, (), (), ())))
    with pytest.raises(SubjectError, match="cannot import no_such_module_at_all"):
        render(plan(Forward("M", "no_such_module_at_all", "M", "def forward(self): pass", (), (), ())))


def test_a_plan_without_forwards_is_a_module() -> None:
    assert render(plan()).startswith('"""TinyForCausalLM as hfspeed serves it')
    compile(render(plan()), "m", "exec")


def test_tabs_and_packages(tmp_path: Path) -> None:
    package = ModuleType("authored_package")
    package.__path__ = [str(tmp_path)]
    sys.modules["authored_package"] = package
    tiny = author(tmp_path, "class M:\n\tdef forward(self, x):\n\t\tif x:\n\t\t\treturn 1\n\t\treturn 2\n", raw=True)
    sys.modules[f"authored_package.{tiny.__name__}"] = tiny
    setattr(package, tiny.__name__, tiny)
    tiny.M.__module__ = f"authored_package.{tiny.__name__}"
    text = render(plan(forward(tiny.M)))
    assert f"from authored_package import {tiny.__name__} as author" in text
    assert emitted(plan(forward(tiny.M)), tmp_path).M().forward(0) == 2
