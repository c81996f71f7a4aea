"""A learner's gradient step as one compiled program: no Python layers, no autograd, no optimizer loop.

The step runs once on copies of the tensors while every tensor operation, forward, backward, clipping, optimizer and
target update, is recorded. The result is a flat graph over all tensors that the learner reads or changes. On the CPU
TorchInductor compiles the graph to a shared library, which is kept on disk: a later process loads it in milliseconds.
For a GPU see :mod:`polyak.learning.engine.cuda_program`.

Random numbers are drawn outside of the graph, in the order of the step, so that compiled and uncompiled training draw
the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.optim import Optimizer

from polyak.learning.engine.matrix_products import use_faster
from polyak.learning.engine.optimizer_rules import (
    RULES,
    Rule,
    TracedOptimizer,
    check_traceable,
    cohorts,
    factors,
)
from polyak.learning.engine.partition import Marking, Run, in_parts
from polyak.learning.engine.pytree import builder, layout, rebuilt, tensors_of
from polyak.learning.engine.quiet import quiet
from polyak.learning.engine.shared_library import loaded
from polyak.learning.engine.twin import twin
from polyak.learning.learner import Learner
from polyak.nn.backends.operations import is_random
from polyak.nn.backends.own_code import OwnCodeError
from polyak.nn.backends.recording import Visited
from polyak.nn.backends.tracing import UntraceableError, trace
from polyak.nn.backends.watch import Watch
from polyak.seeding import random_states_kept

aten = torch.ops.aten

Draw = Callable[..., Tensor]
"""Draws a tensor of random numbers, into ``out`` if given."""


class Program:
    """One compiled method of a learner, for one layout of its batch.

    Args:
        learner: its tensors are read and changed in place.
        method: its name; called with a batch and ``static``, it returns tensors, in named tuples and dicts.
        batch: an example.
        static: further arguments, plain values that become constants of the program.
        checks: refuse a program's own code that may do more than compute, see :mod:`polyak.nn.backends.own_code`.

    Raises:
        UntraceableError: the method cannot become one graph.
        Exception: whatever the compiler raises.
    """

    status = "compiled"
    """The engine's status when it runs such a program."""
    report: Callable[[str], None] | None = None
    """Called with messages about slow tasks."""
    rules: ClassVar[Mapping[type[Optimizer], Rule]] = RULES
    """The tensor operations of optimizer steps."""
    decompositions: ClassVar[Mapping[Any, Callable[..., Any]]]
    """Operation -> equivalent function that replaces it."""

    def __init__(
        self, learner: Learner, method: str, batch: Any, static: tuple[Any, ...] = (), checks: bool = False
    ) -> None:
        inputs = Inputs(learner)
        given = tensors_of(batch)
        results: list[Any] = []
        stepped: set[str] = set()

        def step(*tensors: Tensor) -> list[Tensor]:
            mine, theirs = tensors[: len(inputs.tensors)], tensors[len(inputs.tensors) :]
            learning = inputs.twin(mine, self.rules)
            with Visited() if checks else nullcontext() as visited:
                results[:] = [learning.eagerly(getattr(learning, method), rebuilt(batch, iter(theirs)), *static)]
            if visited is not None and not set(visited.modules) <= set(learning.modules()):
                raise OwnCodeError("it calls a module that is no part of the learner, and may change unnoticed")
            traced: dict[str, Any] = dict(learning.optimizers)
            stepped.update(name for name, optimizer in traced.items() if optimizer.stepped)
            return tensors_of(results)

        gpus = [inputs.device] if inputs.device.type == "cuda" else []
        with quiet(), random_states_kept(*gpus):
            graph = trace(step, inputs.tensors, given, self.decompositions)
        inputs.follow(frozenset(stepped))
        self.graph = graph
        self.method = method
        self._draws, blanks = _hoist_random_numbers(graph, len(inputs.tensors), inputs.device)
        self._results_of = builder(results[0])
        self._inputs = inputs
        self._arguments = [*inputs.tensors, *blanks, *given]
        self._group = learner.group
        self._run: Run = self._parts(lambda part, _: partial(interpret, part))

    def compile(self) -> None:
        """Build the library or find it on disk, and load it."""
        use_faster(self.graph)
        self._run = self._parts(lambda part, arguments: loaded(part, arguments, self._building))

    def _parts(self, make: Callable[[GraphModule, Sequence[Tensor]], Run]) -> Run:
        return in_parts(self.graph, self._arguments, self._group, make)

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Report that compilation starts and ends."""
        report, started = self.report or (lambda text: None), time.perf_counter()
        what = self.method.replace("_", " ")
        report(f"compiling the {what} (once for this machine, network and batch size; 15 to 40 s) ...")
        yield
        report(f"compiled the {what} in {time.perf_counter() - started:.0f} s")

    @property
    def current(self) -> bool:
        """Whether the learner's modules, parameters, optimizers and options are unchanged since the program was
        built."""
        return self._inputs.current

    def rebind(self) -> bool:
        """Use the tensors that the learner has now. Returns False if its structure has changed, so that another program
        is needed."""
        if self._inputs.learner.group is not self._group:
            return False
        try:
            fresh = Inputs(self._inputs.learner)
        except UntraceableError:
            return False
        if fresh.signature != self._inputs.signature:
            return False
        fresh.follow(self._inputs.stepped)
        self._arguments[: len(fresh.tensors)] = fresh.tensors
        self._inputs = fresh
        return True

    def __call__(self, given: Sequence[Tensor]) -> Any:
        """Run on a batch in the form of :func:`~polyak.learning.engine.pytree.tensors_of`."""
        self._inputs.count()
        self._inputs.refresh_factors()
        arguments = self._arguments
        at = len(self._inputs.tensors)
        for draw in self._draws:
            draw(out=arguments[at])
            at += 1
        arguments[at:] = given
        return self._results_of(iter(self._run(arguments)))


@torch.no_grad()
def interpret(graph: GraphModule, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
    """Run a graph uncompiled, operation by operation: the reference for compiled results."""
    results: Sequence[Tensor] = graph(*arguments)
    return results


# -- the learner's tensors --------------------------------------------------------------------------------------------


class Inputs:
    """Every tensor that a learner's step reads or changes, and detection of replaced tensors."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        if any(map(_HOOKS, learner.parameters())):
            raise UntraceableError("a hook on a parameter changes its gradient")
        self.names = [name for name, _ in learner.named_parameters()] + [name for name, _ in learner.named_buffers()]
        self.tensors: list[Tensor] = [*learner.parameters(), *learner.buffers()]
        of = {id(tensor): name for name, tensor in zip(self.names, self.tensors, strict=True)}
        self._own = list(self.tensors)
        self.device = next((tensor.device for tensor in self.tensors), torch.device("cpu"))
        self._counters: list[tuple[Optimizer, dict[str, Any]]] = []
        self._views: list[np.ndarray] = []
        self.stepped: frozenset[str] = frozenset()
        """Names of the optimizers that the method steps."""
        self.cohorts = [cohort for name in learner.optimizers for cohort in self._cohorts(name, of)]
        self._watch = _LearnerWatch(learner)
        plans = [(c.name, type(c.optimizer), c.params, c.states, c.place) for c in self.cohorts]
        hooks = [list(each.values()) for each in self._watch.modules.hooks]
        self.signature = (repr(learner), hooks, self.names, layout(self.tensors), plans, self._watch.options)
        """The key of a program: learners with equal keys differ only in the values of tensors."""

    def _cohorts(self, name: str, of: Mapping[int, str]) -> Iterator[Cohort]:
        optimizer = self.learner.optimizers[name]
        check_traceable(optimizer, self.device)
        for group in optimizer.param_groups:
            for params in cohorts(optimizer, group):
                states = [self._state(optimizer, optimizer.state.get(p, {})) for p in params]
                place = self._add(torch.tensor(factors(optimizer, group, params), device=self.device))
                step = next((state["step"] for state in states if state and state["step"] is not None), None)
                yield Cohort(name, optimizer, group, params[:1], [of[id(p)] for p in params], states, place, step)

    def _state(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """Returns one parameter's optimizer state, with input positions in place of tensors."""
        if not state:
            return {}
        row = {
            key: _InputPlace(self._add(v)) if isinstance(v, Tensor) else v for key, v in state.items() if key != "step"
        }
        if isinstance(step := state.get("step"), Tensor) and step.device == self.device:
            return {"step": _InputPlace(self._add(step)), **row}
        if step is not None:
            self._counters.append((optimizer, state))
        return {"step": None, **row}

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def twin(self, tensors: Sequence[Tensor], rules: Mapping[type[Optimizer], Rule]) -> Learner:
        """Returns a copy of the learner with other tensors, optimizers that update them by ``rules``, and markers at
        its sums over learners: running it does not change the learner."""
        learner = self.learner
        stand_ins: dict[int, Any] = {id(was): tensors[place] for place, was in enumerate(self._own)}
        for name, optimizer in learner.optimizers.items():
            stand_ins[id(optimizer)] = self._traced(name, rules, tensors)
        stand_ins[id(learner.engine)] = learner.engine
        if learner.group is not None:
            stand_ins[id(learner.group)] = Marking(learner.group.size)
        return twin(learner, stand_ins)

    def _traced(self, name: str, rules: Mapping[type[Optimizer], Rule], tensors: Sequence[Tensor]) -> TracedOptimizer:
        """Returns an optimizer whose step applies to other tensors."""
        optimizer = self.learner.optimizers[name]
        state = dict(zip(self.names, tensors, strict=False))
        ours = [cohort for cohort in self.cohorts if cohort.name == name]
        rows = [
            [{k: tensors[v] if isinstance(v, _InputPlace) else v for k, v in row.items()} for row in cohort.states]
            for cohort in ours
        ]
        params = [[state[param] for param in cohort.params] for cohort in ours]
        by = [tensors[cohort.place] for cohort in ours]
        return TracedOptimizer(optimizer, params, rows, by, [cohort.group for cohort in ours], rules)

    def follow(self, stepped: frozenset[str]) -> None:
        """Track these optimizers only, since the method does not step the others."""
        self.stepped = stepped
        self.cohorts = [cohort for cohort in self.cohorts if cohort.name in stepped]
        ours = [cohort.optimizer for cohort in self.cohorts]
        self._counters = [counter for counter in self._counters if counter[0] in ours]
        if self.device.type == "cpu":
            self._views = [self.tensors[cohort.place].numpy() for cohort in self.cohorts]

    @property
    def current(self) -> bool:
        """Whether the learner still has these tensors and options."""
        return self._watch.unchanged

    def count(self) -> None:
        """Count a step, before it runs, in those counters that are not among the inputs."""
        for _, state in self._counters:
            state["step"] += 1

    def refresh_factors(self) -> None:
        """Update the factors of learning rates and step counts, before a run on the CPU."""
        for cohort, values in zip(self.cohorts, self._views, strict=True):
            values[:] = factors(cohort.optimizer, cohort.group, cohort.first)


class _InputPlace(int):
    """A position among a program's inputs."""


class Cohort(NamedTuple):
    """Parameters of an optimizer's group with equal step counts, and the positions of their tensors among the
    inputs."""

    name: str
    """Name of the optimizer."""
    optimizer: Optimizer
    group: dict[str, Any]
    first: list[Tensor]
    """One of the parameters; all have its step count."""
    params: list[str]
    """Names of the parameters."""
    states: list[dict[str, Any]]
    """Their states, with positions in place of tensors."""
    place: int
    """Position of their factors."""
    step: int | None
    """Position of their step count, if it is among the inputs."""


_REQUIRES_GRAD, _HOOKS = attrgetter("requires_grad"), attrgetter("_backward_hooks")


class _LearnerWatch:
    """Detects, in a few microseconds, that a learner was changed by other code."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.modules = Watch(learner.modules(), moving=learner.counters)
        self._params = list(learner.parameters())
        self._was_free = list(map(_REQUIRES_GRAD, self._params))
        self._had_optimizers = dict(learner.optimizers)
        self._optimizers = list(learner.optimizers.values())
        self._had_groups = [[{**g, "params": list(g["params"])} for g in o.param_groups] for o in self._optimizers]
        self._had_states = [{p: dict(state) for p, state in o.state.items()} for o in self._optimizers]
        self._plain_rates = [  # a rate that is a tensor stays the same object
            (group, had)
            for optimizer, groups in zip(self._optimizers, self._had_groups, strict=True)
            for group, had in zip(optimizer.param_groups, groups, strict=True)
            if isinstance(group["lr"], float)
        ]

    @property
    def options(self) -> list[Any]:
        """The plain values that are constants of a program."""
        groups = [[{k: v for k, v in g.items() if k not in ("params", "lr")} for g in had] for had in self._had_groups]
        return [self.modules.options, self._was_free, groups]

    @property
    def unchanged(self) -> bool:
        """Whether the learner is unchanged, apart from learning rates and counters."""
        for group, had in self._plain_rates:
            had["lr"] = group["lr"]
        try:
            return bool(
                self.modules.unchanged()
                and list(map(_REQUIRES_GRAD, self._params)) == self._was_free
                and not any(map(_HOOKS, self._params))
                and self._learner.optimizers == self._had_optimizers
                and [o.param_groups for o in self._optimizers] == self._had_groups
                and [o.state for o in self._optimizers] == self._had_states
            )
        except RuntimeError:  # replaced tensors, which cannot be compared like numbers
            return False


# -- graphs ------------------------------------------------------------------------------------------------------------


def _norms(tensors: list[Tensor], ord: float = 2, dtype: torch.dtype | None = None) -> list[Tensor]:
    """torch._foreach_norm as operations that can be fused with others."""
    if ord != 2 or dtype is not None:
        return NotImplemented
    return [tensor.square().sum().sqrt() for tensor in tensors]


def _lerp(tensors: list[Tensor], ends: list[Tensor], weights: list[Tensor]) -> None:
    for tensor, end, weight in zip(tensors, ends, weights, strict=True):
        tensor.lerp_(end, weight)


def _batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor | None, variance: Tensor | None, *options: Any
) -> Any:
    """Calls the same operation under a name that tells the compiler that running statistics change."""
    if mean is None or variance is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, *options)
    return aten._native_batch_norm_legit.default(x, weight, bias, mean, variance, *options)


_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._foreach_norm.Scalar: _norms,
    aten._foreach_lerp_.List: _lerp,
    aten.native_batch_norm.default: _batch_norm,
}
Program.decompositions = _DECOMPOSITIONS

_RANDOM = {
    aten.randn_like.default: torch.randn,
    aten.randn.default: torch.randn,
    aten.randn.generator: torch.randn,
    aten.rand_like.default: torch.rand,
    aten.rand.default: torch.rand,
    aten.rand.generator: torch.rand,
}
"""Random operation -> function that draws equal numbers, given shape and type."""
_FILLING: dict[Any, Callable[..., Tensor]] = {
    aten.bernoulli_.float: Tensor.bernoulli_,
    aten.normal_.default: Tensor.normal_,
    aten.uniform_.default: Tensor.uniform_,
}
"""Random operation on an existing tensor -> in-place function that draws equal numbers."""
_EMPTY: tuple[Any, ...] = (aten.empty_like.default, aten.empty.memory_format, aten.new_empty.default)


def _hoist_random_numbers(graph: GraphModule, place: int, device: torch.device) -> tuple[list[Draw], list[Tensor]]:
    """Replace every random draw of a graph by an input on a device, the first at position ``place``.

    Returns:
        The draws in order, and an example tensor of each.

    Raises:
        UntraceableError: a draw depends on more than a shape.
    """
    nodes = list(graph.graph.nodes)
    following = [node for node in nodes if node.op == "placeholder"][place]
    draws: list[Draw] = []
    blanks: list[Tensor] = []
    for node in nodes:
        if node.op != "call_function" or not is_random(node.target):
            continue
        value = node.meta["val"]
        draw = _drawing(node)
        if draw is None or not value.is_contiguous():
            raise UntraceableError(f"it draws random numbers by {node.target}")
        with graph.graph.inserting_before(following):
            drawn = graph.graph.placeholder(f"drawn_{len(draws)}")
        drawn.meta["val"] = value
        node.replace_all_uses_with(drawn)
        graph.graph.erase_node(node)
        shape = tuple(value.shape)
        draws.append(partial(draw, shape, dtype=value.dtype, device=device))
        blanks.append(torch.zeros(shape, dtype=value.dtype, device=device))
    graph.recompile()
    return draws, blanks


def _drawing(node: Node) -> Draw | None:
    """Returns a function that draws the same numbers as an operation, given shape and type; None if unknown."""
    target: Any = node.target
    if node.kwargs.get("generator") is not None:
        return None
    if target in _RANDOM:
        return _RANDOM[target]
    if target in _FILLING:
        (filled, *options), into = node.args, node.all_input_nodes
        if into == [filled] and into[0].target in _EMPTY and len(into[0].users) == 1:
            return partial(_filled, _FILLING[target], options)
    return None


def _filled(
    fill: Callable[..., Tensor], options: Sequence[Any], shape: Any, out: Tensor | None = None, **kind: Any
) -> Tensor:
    return fill(torch.empty(shape, **kind) if out is None else out, *options)
