"""A flat graph split at the points where learners exchange sums.

A compiled program cannot wait for other learners. So while the step of a learner in a group is traced, each sum over
learners leaves a marker in the graph. The graph is split at the markers, and its parts are compiled separately.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from polyak.learning.data_parallel import Group

aten = torch.ops.aten

Run = Callable[[list[Tensor]], Sequence[Tensor]]
"""Reads and changes some tensors, and returns others."""

_library = torch.library.Library("polyak", "FRAGMENT")
_library.define("sum_over_learners(Tensor x) -> Tensor")
_library.impl("sum_over_learners", torch.clone, "CPU")
_MARKER = torch.ops.polyak.sum_over_learners.default


class Marking:
    """Stands in for a :class:`~polyak.learning.data_parallel.Group` while a step is traced.

    Args:
        size: the number of learners.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def sum(self, tensor: Tensor) -> Tensor:
        total: Tensor = _MARKER(tensor)
        return total


def in_parts(
    graph: GraphModule,
    arguments: Sequence[Tensor],
    group: Group | None,
    make: Callable[[GraphModule, Sequence[Tensor]], Run],
) -> Run:
    """Returns a function that runs a graph, and sums over the learners at its markers.

    Args:
        graph: its nodes carry example values, as :func:`~polyak.learning.engine.tracing.trace` leaves them.
        arguments: examples of its inputs.
        group: the learner's; None: the graph has no markers and stays whole.
        make: compiles one part, given examples of its inputs.
    """
    if group is None:
        return make(graph, arguments)
    nodes = list(graph.graph.nodes)
    place = {node: i for i, node in enumerate(node for node in nodes if node.op == "placeholder")}
    results = [_origin(node) for node in nodes[-1].args[0]]
    segments = _cut(nodes[len(place) : -1])
    wanted = {node for segment in segments for node in (*segment.takes, *segment.exchanged)} | set(results)
    steps: list[tuple[Run, list[int], list[int]]] = []
    for segment in segments:
        gives = [node for node in segment.nodes if node in wanted]
        takes = [place[node] for node in segment.takes]
        examples = [
            arguments[i] if i < len(arguments) else _blank(n) for i, n in zip(takes, segment.takes, strict=True)
        ]
        run = make(segment.graph(graph, gives), examples)
        for node in (*gives, *segment.markers):
            place[node] = len(place)
        steps.append((run, takes, [place[node] for node in segment.exchanged]))
    returned = [place[node] for node in results]

    def run_all(arguments: list[Tensor]) -> list[Tensor]:
        values = list(arguments)
        for run, takes, exchanged in steps:
            values += run([values[i] for i in takes])
            values += [group.sum(values[i]) for i in exchanged]
        return [values[i] for i in returned]

    return run_all


class _Segment:
    """The operations between two markers.

    Args:
        nodes: the operations.
        markers: the marker that follows, if any.
    """

    def __init__(self, nodes: list[Node], markers: list[Node]) -> None:
        self.nodes, self.markers = nodes, markers
        self.exchanged = [_origin(marker.all_input_nodes[0]) for marker in markers]
        self.takes: dict[Node, None] = {}
        """Inputs of the segment: results of other segments and inputs of the whole graph, in order."""
        self._views: dict[Node, None] = {}
        """Views of inputs, which are recomputed: a view passed between segments would miss changes of its tensor."""
        self._known = set(nodes)
        for node in nodes:
            for needed in node.all_input_nodes:
                self._need(needed)

    def _need(self, node: Node) -> None:
        node = self._own(node)
        if node in self._known:
            return
        self._known.add(node)
        if node.op == "get_attr" or _is_view(node):
            for needed in node.all_input_nodes:
                self._need(needed)
            self._views[node] = None
        else:
            self.takes[node] = None

    def _own(self, node: Node) -> Node:
        """Returns the node itself, or, if another segment changed a tensor in place, that tensor's node."""
        while node not in self._known and _changes(node):
            node = node.all_input_nodes[0]
        return node

    def graph(self, whole: GraphModule, gives: list[Node]) -> GraphModule:
        """Returns the segment as a graph of its own, from its inputs to ``gives``."""
        graph, ours = Graph(), {}
        for node in self.takes:
            ours[node] = graph.placeholder(node.name)
            ours[node].meta = dict(node.meta)
        for node in (*self._views, *self.nodes):
            ours[node] = graph.node_copy(node, lambda needed: ours[self._own(needed)])
        graph.output([self._dense(graph, node, ours[node]) for node in gives])
        return GraphModule(whole, graph)

    def _dense(self, graph: Graph, node: Node, ours: Node) -> Node:
        """Returns a contiguous version of a result, as the next part expects."""
        if node.meta["val"].is_contiguous():
            return ours
        return graph.call_function(aten.clone.default, (ours,), {"memory_format": torch.contiguous_format})


def _cut(nodes: Sequence[Node]) -> list[_Segment]:
    segments: list[_Segment] = []
    current: list[Node] = []
    for node in nodes:
        if node.target is _MARKER:
            segments.append(_Segment(current, [node]))
            current = []
        else:
            current.append(node)
    return [*segments, _Segment(current, [])]


def _origin(node: Node) -> Node:
    """Returns the tensor that a node changed in place and returned; otherwise the node itself."""
    while _changes(node):
        node = node.all_input_nodes[0]
    return node


def _changes(node: Node) -> bool:
    returned = _returned(node)
    return returned is not None and returned.is_write


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    returned = _returned(node)
    return returned is not None and not returned.is_write


def _returned(node: Node) -> Any:
    """Returns the schema's alias information of an operation's result; None if it shares no memory with arguments."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.returns:
        return None
    return node.target._schema.returns[0].alias_info


def _blank(node: Node) -> Tensor:
    value = node.meta["val"]
    return torch.zeros(value.shape, dtype=value.dtype)
