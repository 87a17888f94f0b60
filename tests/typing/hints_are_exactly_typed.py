"""Read by mypy and pyright, never run: a hint returns the very type it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

from hfspeed import attention, decoder_layers, experts, gated_mlp, norm


class Plain:
    size: int = 4


assert_type(norm(Plain), type[Plain])
assert_type(norm()(Plain), type[Plain])
assert_type(attention(Plain), type[Plain])
assert_type(attention(query="q", output=None)(Plain), type[Plain])
assert_type(decoder_layers(Plain), type[Plain])
assert_type(decoder_layers("layers")(Plain), type[Plain])
assert_type(experts(router="gate", shared="shared")(Plain), type[Plain])
assert_type(gated_mlp(gate="gate", up="up", down="down")(Plain), type[Plain])


@norm
@attention(query="q_proj", key="k_proj", value="v_proj", output="o_proj")
@decoder_layers("layers")
@gated_mlp
@experts()
class Marked:
    def __init__(self, size: int) -> None:
        self.size = size

    def forward(self, x: int) -> str:
        return str(x + self.size)


assert_type(Marked, type[Marked])
assert_type(Marked(3), Marked)
assert_type(Marked(3).forward(1), str)

wrong: list[Callable[[], Any]] = [
    lambda: attention(query=1),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    lambda: attention(quary="q"),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    lambda: norm("x"),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    lambda: decoder_layers(3),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    lambda: gated_mlp("gate", "up"),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
]
