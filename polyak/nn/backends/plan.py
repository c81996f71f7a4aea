"""A flat graph as calls of numpy and torch on memory that is allocated once.

The graph is planned once: unused operations are left out, repeated ones are computed once, those that depend on no
input are computed now, views share memory, and results that are no longer needed leave their memory to later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from polyak.nn.backends.operations import Call, calls_of
from polyak.nn.backends.recording import Operation, memory

aten = torch.ops.aten

COPIED_NUMBERS = 65_536
"""Largest number of entries of an input that is copied to its place at each run; a larger input is read in place, and
the calls are made again when its address changes."""

_OF_SHAPES = tuple(
    getattr(aten, name).default
    for name in ("ones_like", "zeros_like", "full_like", "empty_like", "new_ones", "new_zeros", "new_full", "new_empty")
)
"""Operations that read no numbers of their operand."""


class Plan:
    """Runs a graph any number of times.

    Args:
        graph: its nodes carry example values, as ``make_fx`` leaves them.
        arguments: its inputs.
        fixed: identities of those inputs that are the same tensors at each run. They are read and changed in place.
    """

    def __init__(self, graph: GraphModule, arguments: Sequence[Tensor], fixed: Collection[int]) -> None:
        self._fixed, self._analysis = fixed, _Analysis(graph)
        self._bind(arguments)

    @torch.no_grad()
    def _bind(self, arguments: Sequence[Tensor]) -> None:
        """Make the calls for inputs at these addresses."""
        analysis, made = self._analysis, _Tensors(self._analysis)
        self._copied: list[tuple[int, Tensor]] = []
        self._bound: list[tuple[int, Tensor]] = []
        gathered: dict[Any, int] = {}
        for place, (node, tensor) in enumerate(zip(analysis.inputs, arguments, strict=True)):
            kept = tensor.detach()
            if not node.users:
                continue
            if id(tensor) not in self._fixed:
                if all(user.target is aten.index_select.default and user.args[:2] == (node, 0) for user in node.users):
                    gathered[node] = place
                elif tensor.numel() > COPIED_NUMBERS:
                    self._bound.append((place, tensor))
                else:
                    kept = torch.empty_like(kept).copy_(kept)
                    self._copied.append((place, kept))
            made[node] = kept
        self._calls: list[Call] = []
        self._gathers: dict[int, list[tuple[int, Tensor, Tensor]]] = {place: [] for place in gathered.values()}
        self._sources: dict[int, Tensor] = {}
        for step, ends in zip(analysis.steps, analysis.ends, strict=True):
            source: Any = step.node.args[0] if step.node.args else None
            rows = made[step.node.all_input_nodes[1]] if isinstance(source, Node) and source in gathered else None
            calls = made.calls(step, ends)
            if rows is not None:
                self._gathers[gathered[source]].append((len(self._calls), rows, made[step.node]))
                calls = calls[:1]  # another takes its place whenever the source is another
            self._calls += calls
        for place in self._gathers:
            self._gather(place, arguments[place])
        self._results, self._numbers = [made[node] for node in analysis.results], made.numbers
        roots = [analysis.root(examples(node)[0]) for node in analysis.results]
        self._number_of = {i: made.place_of[root] for i, root in enumerate(roots) if root in made.place_of}

    def _gather(self, place: int, source: Tensor) -> None:
        """Gather rows of another tensor from now on."""
        self._sources[place] = source
        for i, rows, output in self._gathers[place]:
            if source.dtype is torch.bfloat16 or not source.is_contiguous():  # which numpy would copy whole
                self._calls[i] = partial(torch.index_select, source, 0, rows, out=output)
            else:
                self._calls[i] = partial(source.numpy().take, rows.numpy(), 0, output.numpy(), "wrap")

    def __call__(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Runs the graph: writes to the tensors that it changes, and returns its results in new tensors."""
        if any(arguments[place] is not bound for place, bound in self._bound):
            self._bind(arguments)
        for place, kept in self._copied:
            kept.copy_(arguments[place])
        for place, source in self._sources.items():
            if arguments[place] is not source:
                self._gather(place, arguments[place])
        with np.errstate(all="ignore"):  # callers handle numbers that are not finite
            for call in self._calls:
                call()
        numbers, of = self._numbers.clone().unbind(), self._number_of
        return [numbers[of[i]] if i in of else result.clone() for i, result in enumerate(self._results)]


class _Step(NamedTuple):
    """An operation that computes new results, or changes memory in place."""

    node: Node
    reads: set[int]
    in_place: set[int]
    """The memory that it changes."""
    writes: set[int]
    """The memory that it changes, and the memory of its new results."""


class _Analysis:
    """The steps of a graph and the memory they use; the memory of the examples in its nodes represents that of a run.

    Args:
        graph: repeated operations are taken out of it.
    """

    def __init__(self, graph: GraphModule) -> None:
        self.graph = graph
        self._root: dict[int, int] = {}
        every = self._steps()
        changed = set[int]().union(*(step.in_place for step in every))
        self._join_repeats({step.node: step for step in every}, changed)
        nodes = list(graph.graph.nodes)
        self.inputs = [node for node in nodes if node.op == "placeholder"]
        self.results: list[Any] = list(nodes[-1].args[0])
        given = set[int]().union(*map(self.memory, self.inputs))
        kept = set[int]().union(*map(self.memory, self.results))
        self.steps = self._necessary(self._steps(), given, kept, changed)
        last = {root: i for i, step in enumerate(self.steps) for root in step.reads | step.writes}
        self.ends = [
            {root for root in step.reads | step.writes if last[root] == i} - kept for i, step in enumerate(self.steps)
        ]
        """After each step, the memory that nothing needs any more."""

    def memory(self, node: Node) -> set[int]:
        """The memory of a node's tensors."""
        return set(map(self.root, examples(node)))

    def root(self, example: Tensor) -> int:
        """The memory of an example."""
        return self._root.get(memory(example), memory(example))

    def _steps(self) -> list[_Step]:
        """Returns the operations that are not views."""
        steps = []
        for node in self.graph.graph.nodes:
            if node.op != "call_function":
                continue
            reads = set[int]().union(*map(self.memory, () if node.target in _OF_SHAPES else node.all_input_nodes))
            if node.target is aten._unsafe_view.default:
                (given,), (view,) = examples(node.all_input_nodes[0]), examples(node)
                self._root[memory(view)] = self.root(given)
            found, in_place = self.memory(node), set[int]().union(*map(self.memory, _changed(node)))
            if in_place or not found or not found <= reads:
                steps.append(_Step(node, reads, in_place, found | in_place))
        return steps

    def _join_repeats(self, steps: dict[Node, _Step], changed: set[int]) -> None:
        """Use the first result of operations that do the same on the same numbers."""
        version: dict[int, int] = {}
        seen: dict[Any, Node] = {}
        for node in list(self.graph.graph.nodes):
            step = steps.get(node)
            for root in step.in_place if step is not None else ():
                version[root] = version.get(root, 0) + 1
            if node.op != "call_function" or (step is not None and step.writes & changed):
                continue
            numbers = () if step is None else tuple(sorted((r, version.get(r, 0)) for r in step.reads & changed))
            first = seen.setdefault((node.target, _hashable(node.args), _hashable(node.kwargs), numbers), node)
            if first is not node:
                for ours, theirs in zip(examples(node), examples(first), strict=True):  # views of ours show theirs
                    self._root[memory(ours)] = self.root(theirs)
                node.replace_all_uses_with(first)
                self.graph.graph.erase_node(node)

    @staticmethod
    def _necessary(steps: Sequence[_Step], given: set[int], kept: set[int], changed: set[int]) -> list[_Step]:
        """The steps to run each time. The results of others are not needed, or always the same."""
        moving, needed = given | changed, given | kept
        depend = []
        for step in steps:
            depend.append(bool((step.reads | step.writes) & moving))
            moving = moving | step.writes if depend[-1] else moving
        found = []
        for step, own in zip(reversed(steps), reversed(depend), strict=True):
            if step.writes & needed:
                needed = needed | step.reads
                if own:
                    found.append(step)
        return found[::-1]


class _Tensors:
    """The tensors of a plan, and the calls that fill them."""

    def __init__(self, analysis: _Analysis) -> None:
        self._analysis = analysis
        self._of: dict[Node, Any] = {}
        self._free: list[Tensor] = []
        self._blocks: dict[int, Tensor] = {}
        """The block of each root memory of the examples."""
        made = set[int]().union(*(step.writes - step.in_place for step in analysis.steps))
        single = [e for node in analysis.results for e in examples(node) if e.ndim == 0 and e.dtype is torch.float32]
        roots = dict.fromkeys(
            r for e in single if (r := analysis.root(e)) in made and e.untyped_storage().nbytes() == 4
        )
        self.place_of = {root: i for i, root in enumerate(roots)}
        """Position in :attr:`numbers` of each result that is a single number, by its memory."""
        self.numbers = torch.zeros(len(roots))

    def __setitem__(self, node: Node, tensor: Tensor) -> None:
        self._of[node] = tensor

    def __getitem__(self, node: Node) -> Any:
        """Returns the tensors of a node. Views and constants are made at the first access."""
        if node not in self._of:
            if node.op == "get_attr":
                self._of[node] = getattr(self._analysis.graph, str(node.target))
            else:
                target: Any = node.target
                self._of[node] = target(*self._given(node.args), **self._given(node.kwargs))
        return self._of[node]

    def _given(self, arguments: Any) -> Any:
        return map_arg(arguments, self.__getitem__)

    def calls(self, step: _Step, ends: Collection[int]) -> list[Call]:
        """Returns the calls that compute a step's results; frees the memory in ``ends``, which no later step needs."""
        node, args, kwargs = step.node, self._given(step.node.args), self._given(step.node.kwargs)
        given = {
            _place(e): t for n in node.all_input_nodes for e, t in zip(examples(n), tree_leaves(self[n]), strict=True)
        }
        over = self._overwritten(step, ends)
        self._of[node] = tree_map(
            lambda e: given.get(_place(e)) if self._is_given(e, step) else self._new(e, over), node.meta.get("val")
        )
        outputs = [leaf for leaf in tree_leaves(self._of[node]) if isinstance(leaf, Tensor)]
        found = calls_of(Operation(node.target, args, kwargs, outputs))
        self._free += [self._blocks.pop(root) for root in ends if root in self._blocks]
        return found

    def _is_given(self, example: Any, step: _Step) -> bool:
        return isinstance(example, Tensor) and self._analysis.root(example) in step.in_place

    def _overwritten(self, step: _Step, ends: Collection[int]) -> Tensor | None:
        """The example of an operand that the result may take the place of: it is not needed after this step, which
        computes each number from the operand's number at the same place."""
        node = step.node
        if step.in_place or not _is_elementwise(node) or not isinstance(node.args[0], Node):
            return None
        result, operand = examples(node)[0], examples(node.args[0])[0]
        root = self._analysis.root(operand)
        others = [e for n in node.all_input_nodes for e in examples(n) if self._analysis.root(e) == root]
        fits = result.dtype is operand.dtype and _size(result) == _size(operand)
        fits = fits and all(_place(e)[1:] == _place(result)[1:] for e in others)
        return operand if fits and root in ends and root in self._blocks else None

    def _new(self, example: Any, over: Tensor | None = None) -> Any:
        """A tensor like an example, in the place of ``over`` or in memory that is free."""
        if not isinstance(example, Tensor):
            return example
        root = self._analysis.root(example)
        if root in self.place_of:
            return self.numbers[self.place_of[root]]
        if root not in self._blocks and over is not None:
            self._blocks[root] = self._blocks.pop(self._analysis.root(over))
        elif root not in self._blocks:
            size = _size(example)
            # of equal ones the latest, which the cache may still hold
            fit = [b for b in self._free[::-1] if b.dtype is example.dtype and size <= b.numel() <= 2 * size]
            block = min(fit, key=Tensor.numel) if fit else torch.zeros(size, dtype=example.dtype)
            self._free = [b for b in self._free if b is not block]
            self._blocks[root] = block
        return self._blocks[root].as_strided(example.shape, example.stride(), example.storage_offset())


def examples(node: Node) -> list[Tensor]:
    """The example values of a node's tensors."""
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, Tensor)]


def _size(example: Tensor) -> int:
    """Numbers in an example's memory."""
    return example.untyped_storage().nbytes() // example.element_size()


def _is_elementwise(node: Node) -> bool:
    """Whether an operation may write over its first operand: ``where`` would read the others too late."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) and node.target is not aten.where.self


def _place(example: Any) -> Any:
    return (
        (memory(example), example.storage_offset(), example.shape, example.stride())
        if isinstance(example, Tensor)
        else None
    )


def _changed(node: Node) -> list[Node]:
    """The arguments that an operation changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found: list[Node] = []
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.kwargs.get(argument.name) if i >= len(node.args) else node.args[i]
            found += [leaf for leaf in tree_leaves(given) if isinstance(leaf, Node)]
    return found


def _hashable(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return tuple(map(_hashable, argument))
    if isinstance(argument, Mapping):
        return tuple((name, _hashable(part)) for name, part in argument.items())
    return argument if isinstance(argument, Node) else (type(argument), repr(argument))
