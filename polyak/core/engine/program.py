"""A learner's gradient step as one compiled program: no Python layers, no autograd, no optimizer loop.

The step is run once on fake tensors while every tensor operation of it, forward, backward, clipping, optimizer and
target update, is written down. What comes out is a flat graph over all tensors that the learner reads or changes.
On the CPU TorchInductor turns the graph into a shared library, which is kept on disk: a later process loads it in
milliseconds. On a GPU see :mod:`polyak.core.engine.cuda_program`.

Random numbers are drawn outside of the graph, in the order in which the step draws them, so that a compiled and an
uncompiled training draw the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim import Optimizer

from polyak.core.engine.matrix_products import use_faster
from polyak.core.engine.nesting import layout, rebuilt, tensors_of
from polyak.core.engine.optimizer_rules import TracedOptimizer, UntraceableError, check_traceable, factors
from polyak.core.engine.shared_library import library, load, quiet
from polyak.core.learner import Learner

aten = torch.ops.aten

Draw = Callable[..., Tensor]
"""Draws a tensor of random numbers, into ``out`` if there is one."""


class Program:
    """One method of a learner, for one layout of its batch, compiled.

    Args:
        learner: whose tensors are read and changed in place.
        method: its name; called with a batch and ``static``, it returns tensors by name.
        batch: an example.
        static: further arguments, plain values that are built into the program.

    Raises:
        UntraceableError: the method cannot become one graph.
        Exception: whatever the compiler raises.
    """

    status = "compiled"
    """What the engine says of itself once it runs such a program."""

    def __init__(self, learner: Learner, method: str, batch: Any, static: tuple[Any, ...] = ()) -> None:
        inputs = Inputs(learner)
        leaves = tensors_of(batch)
        names: list[str] = []

        def step(*tensors: Tensor) -> list[Tensor]:
            mine, given = tensors[: len(inputs.tensors)], tensors[len(inputs.tensors) :]
            with inputs.replaced(mine) as state:
                arguments = (method, rebuilt(batch, iter(given)), *static)
                results = functional_call(learner, state, arguments, tie_weights=False)
            names[:] = results
            return list(results.values())

        with quiet():
            graph = make_fx(step, decomposition_table=_DECOMPOSITIONS, tracing_mode="fake")(*inputs.tensors, *leaves)
        inputs.follow(inputs.stepped)
        self.graph = graph
        self._run: Callable[[list[Tensor]], Sequence[Tensor]] = self._interpret
        self._draws, blanks = _hoist_random_numbers(graph, len(inputs.tensors))
        self._names = names
        self._inputs = inputs
        self._arguments = [*inputs.tensors, *blanks, *leaves]

    def compile(self) -> None:
        """Build the library, or find it on disk, and load it."""
        use_faster(self.graph)
        self._run = load(library(self.graph, self._arguments))

    @torch.no_grad()
    def _interpret(self, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """The graph as it is, operation by operation: what :meth:`compile` must not change."""
        return self.graph(*arguments)

    @property
    def current(self) -> bool:
        """Whether the learner still is what the program was made of: modules, parameters, optimizers, options."""
        return self._inputs.current

    def rebind(self) -> bool:
        """Take up the tensors that the learner has now. False if it needs another program: it is built otherwise."""
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

    def __call__(self, leaves: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Run on a batch, given as :func:`~polyak.core.engine.nesting.tensors_of` gives it."""
        self._inputs.count()
        self._inputs.refresh_rates()
        arguments = self._arguments
        at = len(self._inputs.tensors)
        for draw in self._draws:
            arguments[at] = draw()
            at += 1
        arguments[at:] = leaves
        return dict(zip(self._names, self._run(arguments), strict=True))


# -- what a learner is made of -----------------------------------------------------------------------------------------


class Inputs:
    """Every tensor that a learner's step reads or changes, and the means to notice that they are others now."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.names = [name for name, _ in learner.named_parameters()] + [name for name, _ in learner.named_buffers()]
        self.tensors: list[Tensor] = [*learner.parameters(), *learner.buffers()]
        of = {id(tensor): name for name, tensor in zip(self.names, self.tensors, strict=True)}
        self._slots = {slot: self.names.index(of[id(tensor)]) for slot, tensor in _slots(learner)}
        self.device = next((tensor.device for tensor in self.tensors), torch.device("cpu"))
        self.rates: list[Rate] = []
        self._counters: list[tuple[Optimizer, dict[str, Any]]] = []
        self._views: list[np.ndarray] = []
        self.stepped: frozenset[str] = frozenset()
        """Names of the optimizers that the method steps."""
        self._plans = [self._plan(name, optimizer, of) for name, optimizer in learner.optimizers.items()]
        self._watch = _Watch(learner)
        plans = [(plan.name, type(plan.optimizer), *plan[2:]) for plan in self._plans]
        hooks = [[*m._forward_hooks.values(), *m._forward_pre_hooks.values()] for m in learner.modules()]
        self.signature = (repr(learner), hooks, self.names, layout(self.tensors), plans, self._watch.options)
        """What a program is made for: two learners that agree in it differ in the values of tensors only."""

    def _plan(self, name: str, optimizer: Optimizer, of: Mapping[int, str]) -> _OptimizerPlan:
        check_traceable(optimizer, self.device)
        params, states, rates = [], [], []
        for group in optimizer.param_groups:
            params.append([of[id(p)] for p in group["params"]])
            states.append([self._state(optimizer, optimizer.state.get(p, {})) for p in group["params"]])
            rates.append(self._add(torch.tensor(factors(optimizer, group), device=self.device)))
            steps = (row.get("step") for row in states[-1])
            self.rates.append(Rate(optimizer, group, rates[-1], next((s for s in steps if s is not None), None)))
        return _OptimizerPlan(name, optimizer, params, states, rates)

    def _state(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """One parameter's state, with the places of its tensors among the inputs instead of them."""
        row = {key: _Place(self._add(v)) if isinstance(v, Tensor) else v for key, v in state.items() if key != "step"}
        if isinstance(step := state.get("step"), Tensor) and step.device == self.device:
            return {"step": _Place(self._add(step)), **row}
        if step is not None:
            self._counters.append((optimizer, state))
        return {"step": None, **row}

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    @contextmanager
    def replaced(self, tensors: Sequence[Tensor]) -> Iterator[dict[str, Tensor]]:
        """Let optimizers work on other tensors for a while; yields what stands in each place of the modules."""
        state = dict(zip(self.names, tensors, strict=False))
        optimizers = self.learner.optimizers
        kept = dict(optimizers)
        traced = {plan.name: plan.on(state, tensors) for plan in self._plans}
        optimizers.update(traced)  # type: ignore[arg-type]
        try:
            yield {slot: tensors[place] for slot, place in self._slots.items()}
        finally:
            optimizers.update(kept)
        self.stepped = frozenset(name for name, optimizer in traced.items() if optimizer.stepped)

    def follow(self, stepped: frozenset[str]) -> None:
        """Look after these optimizers alone: the method leaves the others as they are."""
        self.stepped = stepped
        ours = [optimizer for name, optimizer in self.learner.optimizers.items() if name in stepped]
        self.rates = [rate for rate in self.rates if rate.optimizer in ours]
        self._counters = [counter for counter in self._counters if counter[0] in ours]
        if self.device.type == "cpu":
            self._views = [self.tensors[rate.place].numpy() for rate in self.rates]

    @property
    def current(self) -> bool:
        """Whether the learner is still made of these tensors and has the same options."""
        return self._watch.unchanged

    def count(self) -> None:
        """Before a run: count the step in those counters that are not among the inputs."""
        for _, state in self._counters:
            state["step"] += 1

    def refresh_rates(self) -> None:
        """Before a run on the CPU: bring what depends on learning rates and numbers of steps."""
        for (optimizer, group, _, _), values in zip(self.rates, self._views, strict=True):
            values[:] = factors(optimizer, group)


def _slots(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """Every place of a module that holds a tensor, once, however many names a shared module has: torch would take what
    it put there under the first name for what it must put back under the second."""
    for prefix, module in learner.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield (f"{prefix}.{name}" if prefix else name), tensor


class _Place(int):
    """A place among a program's inputs."""


class Rate(NamedTuple):
    """One group of an optimizer, and where its factors and its number of steps stand among the inputs."""

    optimizer: Optimizer
    group: dict[str, Any]
    place: int
    step: int | None


class _OptimizerPlan(NamedTuple):
    """Where an optimizer's tensors stand among the inputs, group by group."""

    name: str
    optimizer: Optimizer
    params: list[list[str]]
    states: list[list[dict[str, Any]]]
    rates: list[int]

    def on(self, state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> TracedOptimizer:
        """The optimizer's step on other tensors."""
        return TracedOptimizer(
            self.optimizer,
            [[state[name] for name in group] for group in self.params],
            [
                [{k: tensors[v] if isinstance(v, _Place) else v for k, v in row.items()} for row in group]
                for group in self.states
            ],
            [tensors[at] for at in self.rates],
        )


class _Watch:
    """Notices, in a few microseconds, that a learner was changed by hand.

    Dictionaries are compared with copies of themselves, which C code does by the identity of what is in them.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        kinds = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
        self._made_of = [getattr(module, kind) for module in learner.modules() for kind in kinds] + [learner.optimizers]
        self._was_made_of = [dict(each) for each in self._made_of]
        plain = (bool, int, float, str, type(None))
        self._options = [n for n, v in vars(learner).items() if isinstance(v, plain) and n not in learner.counters]
        self._had_options = [getattr(learner, name) for name in self._options]
        self._training = [module.training for module in learner.modules()]
        self._optimizers = list(learner.optimizers.values())
        self._had_groups = [[{**g, "params": list(g["params"])} for g in o.param_groups] for o in self._optimizers]
        self._had_states = [{p: dict(state) for p, state in o.state.items()} for o in self._optimizers]

    @property
    def options(self) -> list[Any]:
        """Plain values that are built into a program."""
        groups = [[{k: v for k, v in g.items() if k not in ("params", "lr")} for g in had] for had in self._had_groups]
        return [self._had_options, groups, self._training]

    @property
    def unchanged(self) -> bool:
        """Whether all is as it was; learning rates and counters may move."""
        self._follow_rates()
        learner = self._learner
        try:
            return bool(
                self._made_of == self._was_made_of
                and [getattr(learner, name) for name in self._options] == self._had_options
                and [o.param_groups for o in self._optimizers] == self._had_groups
                and [o.state for o in self._optimizers] == self._had_states
            )
        except RuntimeError:  # other tensors than before, which cannot be compared as numbers are
            return False

    def _follow_rates(self) -> None:
        for optimizer, groups in zip(self._optimizers, self._had_groups, strict=True):
            for group, had in zip(optimizer.param_groups, groups, strict=False):
                if isinstance(group["lr"], float):
                    had["lr"] = group["lr"]


# -- graphs ------------------------------------------------------------------------------------------------------------


def _norms(tensors: list[Tensor], ord: float = 2, dtype: torch.dtype | None = None) -> list[Tensor]:
    """torch._foreach_norm in operations that fuse with their neighbours."""
    if ord != 2 or dtype is not None:
        return NotImplemented
    return [tensor.square().sum().sqrt() for tensor in tensors]


def _lerp(tensors: list[Tensor], ends: list[Tensor], weights: list[Tensor]) -> None:
    for tensor, end, weight in zip(tensors, ends, weights, strict=True):
        tensor.lerp_(end, weight)


_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten._foreach_norm.Scalar: _norms, aten._foreach_lerp_.List: _lerp}
"""Operations on lists of tensors that the compiler knows tensor by tensor only."""

_RANDOM = {
    aten.randn_like.default: torch.randn,
    aten.randn.default: torch.randn,
    aten.rand_like.default: torch.rand,
    aten.rand.default: torch.rand,
}
"""Operations that draw numbers of a known distribution: what draws the same ones, given shape and type."""


def _hoist_random_numbers(graph: GraphModule, place: int) -> tuple[list[Draw], list[Tensor]]:
    """Turn every random draw of a graph into an input, the first of them at ``place``.

    Returns:
        The draws in order, and a tensor of the shape of each.

    Raises:
        UntraceableError: a draw depends on more than a shape.
    """
    nodes = list(graph.graph.nodes)
    following = [node for node in nodes if node.op == "placeholder"][place]
    draws: list[Draw] = []
    blanks: list[Tensor] = []
    for node in nodes:
        if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
            continue
        value = node.meta["val"]
        if node.target not in _RANDOM or not value.is_contiguous():
            raise UntraceableError(f"it draws random numbers by {node.target}")
        with graph.graph.inserting_before(following):
            drawn = graph.graph.placeholder(f"drawn_{len(draws)}")
        drawn.meta["val"] = value
        node.replace_all_uses_with(drawn)
        graph.graph.erase_node(node)
        shape = tuple(value.shape)
        draws.append(partial(_RANDOM[node.target], shape, dtype=value.dtype, device=value.device))
        blanks.append(torch.zeros(shape, dtype=value.dtype, device=value.device))
    graph.recompile()
    return draws, blanks
