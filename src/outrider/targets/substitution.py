"""Our operators in the place of the linear layers of a traced model.

Layers that read the same rows, such as those that make queries, keys and values, become one
operator: its threads start and wait once for all of them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node


def substitute_kernels(program: torch.export.ExportedProgram) -> None:
    """Put our product in the place of every linear layer, and one in that of all with one input."""
    graph = program.graph_module.graph
    place = {node: index for index, node in enumerate(graph.nodes)}
    joined: dict[tuple[object, ...], list[tuple[Node, _Layer]]] = {}
    for node in graph.nodes:
        layer = _layer_of(node)
        if layer is None:
            continue
        found = joined.setdefault(layer.sort, [])
        # What a layer is made of may be worked out only after the first of those alike.
        if not found or all(place[part] < place[found[0][0]] for part in layer.parts):
            found.append((node, layer))
        else:
            joined[node,] = [(node, layer)]
    for found in joined.values():
        if len(found) > 1:
            _join(graph, *zip(*found, strict=True))
        else:
            ((node, layer),) = found
            node.target = torch.ops.outrider.linear.default
            node.args = (layer.x, layer.weight, layer.scale, layer.bias, layer.kind)
    graph.lint()
    program.graph_module.recompile()


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A linear layer in a traced graph: its input, its weights, and how those are stored."""

    x: Node
    weight: Node
    scale: Node | None
    bias: Node | None
    kind: str

    @property
    def parts(self) -> list[Node]:
        """What it is made of."""
        return [part for part in (self.weight, self.scale, self.bias) if part is not None]

    @property
    def sort(self) -> tuple[object, ...]:
        """What the layers that one operator can take have in common."""
        dtype = self.weight.meta["val"].dtype
        return self.x, self.kind, dtype, self.scale is None, self.bias is None


def _layer_of(node: Node) -> _Layer | None:
    args: Any = node.args
    if node.target is torch.ops.aten.linear.default:
        x, weight, *bias = args
        return _Layer(x, weight, None, bias[0] if bias else None, "")
    if str(node.target) in ("outrider.int8_linear.default", "outrider.linear.default"):
        x, weight, scale, bias, *kind = args
        return _Layer(x, weight, scale, bias, kind[0] if kind else "")
    return None


def _join(graph: Graph, nodes: tuple[Node, ...], layers: tuple[_Layer, ...]) -> None:
    """Put one operator, at the place of the first, for layers that read the same rows."""
    weights = [layer.weight for layer in layers]
    scales = [layer.scale for layer in layers if layer.scale is not None]
    biases = [layer.bias for layer in layers if layer.bias is not None]
    with graph.inserting_before(nodes[0]):
        parts = [*weights, *scales, *biases]
        args = (layers[0].x, parts, bool(scales), bool(biases), layers[0].kind)
        together = graph.call_function(torch.ops.outrider.linears.default, args)
        together.meta["val"] = [node.meta["val"] for node in nodes]
        for place, node in enumerate(nodes):
            one = graph.call_function(operator.getitem, (together, place))
            one.meta = dict(node.meta)
            node.replace_all_uses_with(one)
    for node in nodes:
        graph.erase_node(node)
