"""What the planner refuses, as JSON on standard output: the child process behind ``hfspeed check``.

Whatever the author's code prints goes to standard error, so that it cannot be taken for the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from hfspeed.errors import HfspeedError, RefusedError, SubjectError, UsageError
from hfspeed.refusal import Reason, Refusal


def findings(model: str, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Plan ``model`` and say what was refused.

    Returns:
        ``file``, the modeling file or ``None``; ``refusals``, each as an object of its fields; ``error``, why there
        is no plan, or ``None``; ``usage``, whether the error is that there is no such model to plan; ``refused``,
        whether the refusals keep it from being served; and ``classes``, the names of the classes that are planned.
    """
    from hfspeed.planner.decide import decide
    from hfspeed.planner.load import load

    file: str | None = None
    try:
        subject = load(model, trust_remote_code=trust_remote_code)
        file = str(subject.file)
        with _watched() as seen:
            refusals = decide(subject).refusals
    except RefusedError as error:
        return _answer(file, error.refusals, None, refused=True)
    except SubjectError as error:
        if error.place is None:
            return _answer(file, (), error)
        no = Refusal("model", Reason.CANNOT_RUN, str(error).removeprefix(f"{error.place}: "), place=error.place)
        return _answer(file, (no,), None, refused=True)
    except HfspeedError as error:
        return _answer(file, (), error)
    return _answer(file, refusals, None, classes=_names({subject.model_class, *seen}))


@contextmanager
def _watched() -> Iterator[set[type]]:
    """The classes of all modules that become part of another one in the meantime."""
    from torch.nn.modules.module import register_module_module_registration_hook

    seen: set[type] = set()

    def note(module: object, name: str, child: object) -> None:  # noqa: ARG001  called so by torch
        seen.add(type(child))

    hook = register_module_module_registration_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


def _names(classes: Iterable[type]) -> list[str]:
    """The names of classes and of all that they derive from."""
    return sorted({one.__name__ for cls in classes for one in cls.__mro__})


def main() -> None:
    """Read the arguments, set the limit, answer on what was standard output when the process began."""
    parser = argparse.ArgumentParser(prog="python -m hfspeed.planner.findings")
    parser.add_argument("model")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--memory", type=float, default=0, help="limit in GiB; 0 is none")
    arguments = parser.parse_args()
    if arguments.memory:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(arguments.memory * 2**30)
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        json.dump(findings(arguments.model, trust_remote_code=arguments.trust_remote_code), answer)


def _answer(
    file: str | None,
    refusals: tuple[Refusal, ...],
    error: HfspeedError | None,
    *,
    refused: bool = False,
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "file": file,
        "refusals": [asdict(refusal) for refusal in refusals],
        "error": error and str(error),
        "usage": isinstance(error, UsageError),
        "refused": refused,
        "classes": list(classes),
    }


if __name__ == "__main__":
    main()
