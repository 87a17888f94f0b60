"""A matrix that a forward multiplies by itself, as routers do, becomes a linear that kernels know."""

from __future__ import annotations

import ast

from hfspeed.example import Example
from hfspeed.pattern.bare import Product, elsewhere, products, sizes
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.site import Site
from hfspeed.plan import Whole
from hfspeed.refusal import Place, Reason, Refusal

_GATE = {"gate": "nn.Parameter(torch.empty(8, 16))"}


class BareMatrix(Fusion):
    """`F.linear` on a parameter is a linear; it is loaded under the parameter's name, and laid out for its kernel."""

    name = "bare"

    fuses = (
        Example(
            "return F.linear(x, self.gate).softmax(-1)",
            children=_GATE,
            after="return self.gate_linear(x).softmax(-1)",
        ),
        Example(
            "scores = F.linear(x.type(torch.float32), self.gate.type(torch.float32), None)\nreturn scores.sigmoid()",
            children=_GATE,
            after="scores = self.gate_linear(x.type(torch.float32))",
        ),
        Example(
            "return F.linear(input=x, weight=self.gate, bias=self.shift)",
            children=_GATE | {"shift": "nn.Parameter(torch.empty(8))"},
            after="return self.gate_linear(x)",
        ),
        Example("return x @ self.gate.t()", children=_GATE, after="return self.gate_linear(x)"),
        Example(
            "return torch.matmul(x.float(), self.turned.float()) + 1",
            children={"turned": "nn.Parameter(torch.empty(16, 8))"},
            after="return self.turned_linear(x.float()) + 1",
        ),
    )
    refuses = (
        Example(
            "return F.linear(x, self.gate) * self.gate.mean()", children=_GATE, reason=Reason.USED_ELSEWHERE
        ),
        Example(
            "return F.linear(x, self.gate) if x.ndim > 2 else x.matmul(self.gate.T)",
            children=_GATE,
            reason=Reason.USED_ELSEWHERE,
        ),
    )

    def apply(self, site: Site) -> None:
        """Exchange every product at ``site`` whose matrix nothing else reads."""
        for product in list(products(site)):
            where = elsewhere(site, product)
            if where is not None or {product.matrix, product.vector} & site.read:
                found = f"`{product.matrix}` is read other than by multiplying with it"
                place = site.place(product.node)
                if isinstance(where, ast.AST):
                    told: Place | None = site.recovered.place(where)
                    place = told or place
                site.refusals.append(Refusal(self.name, Reason.USED_ELSEWHERE, found, site.path, place, 2))
                continue
            name = site.free_name(f"{product.matrix}_linear")
            text = f"{site.recovered.self_name}.{name}({site.recovered.segment(product.value)})"
            change = Change("replace", product.at, text)
            if _fits(site, change):
                site.changes.append(change)
                site.ops.append(_op(site, product, name))
                site.promised.append(name)
                site.notes.append(f"{product.matrix} -> {name}")


def _op(site: Site, product: Product, name: str) -> Whole:
    inputs, outputs = sizes(product, site.call.module)
    return Whole(
        site.below(name),
        inputs,
        outputs,
        bool(product.vector),
        matrix=product.matrix,
        vector=product.vector,
        turned=product.turned,
        wide=product.wide,
    )


def _fits(site: Site, change: Change) -> bool:
    """Whether no other fusion has changed the same expression."""
    try:
        changed(site.recovered, [*site.changes, change])
    except ValueError:
        return False
    return True
