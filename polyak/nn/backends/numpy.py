"""A policy's graph by numpy.

For a few observations and a small network, most of the time of a forward pass in torch is overhead. This backend
records the operations of one call of :meth:`~polyak.nn.policies.base.Policy.decide` and repeats them with numpy on
views of the same weights, so that optimizer steps take effect. Random numbers come from torch's generator, in the order
in which the policy draws them: a seed gives the same training with either backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyak.nn.backends.eager import Decided, Eager
from polyak.nn.backends.inputs import Seen, parts
from polyak.nn.backends.program import TracedProgram
from polyak.nn.backends.watch import Watch
from polyak.nn.policies.base import Decision, Policy, n_rows


class Numpy:
    """Computes the actions of one policy by numpy, or by torch where that is not possible.

    Args:
        policy: the policy that acts.

    Attributes:
        reason: why actions are computed by torch; ``None``: they are computed by numpy.
    """

    reason: str | None
    _plan: _Plan | None

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._eager = Eager(policy)
        self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.policy,)  # a copy of a model uses the copy's weights

    def prepare(self, observations: Any) -> None:
        """Prepare for sampling actions for observations like these [B, ...]."""
        self.begin()
        if self.reason is None and self.policy.initial_memory(1) is None:
            self._plan_for(observations, False, None, None)

    def begin(self) -> None:
        """Start a series of actions: the first one checks in full whether the policy has changed, later ones check its
        parts, hooks and memory only."""
        self._is_current = self._watch.unchanged

    def __call__(
        self,
        observations: Any,
        deterministic: bool = False,
        masks: np.ndarray | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> Decided:
        """See :meth:`polyak.nn.backends.eager.Eager.__call__`."""
        return self._plan_for(observations, deterministic, masks, state)(observations, masks, state)

    def _plan_for(
        self, observations: Any, deterministic: bool, masks: np.ndarray | None, state: Mapping[str, Tensor] | None
    ) -> Callable[..., Decided]:
        """Returns the callable that acts on inputs of this kind: a plan, or torch."""
        if not self._is_current():
            self._forget()
        self._is_current = self._in_series
        kind = kind_of(observations), deterministic, masks is None
        if kind not in self._plans:
            self._plans[kind] = self._made(observations, deterministic, masks, state)
        return self._plans[kind]

    def _made(self, observations: Any, deterministic: bool, *others: Any) -> Callable[..., Decided]:
        """Makes a plan; falls back to torch if there can be none, which also raises the error that explains the
        input."""
        try:
            if self.reason is None:
                plan = _Plan(self.policy, observations, deterministic, *others)
                self._modules += plan.program.modules
                self._tensors += plan.program.reads
                self._take_watch(Watch(self._modules, self._tensors), plan.program.has_own_code)
                return plan
        except Exception as error:
            self.reason = str(error)
            self._plans.clear()
            self._take_watch(Watch(self.policy.modules()))
        return lambda observations, masks, state: self._eager(observations, deterministic, masks, state)

    def _forget(self) -> None:
        self.reason = None
        self._plans: dict[Any, Callable[..., Decided]] = {}
        self._modules: list[nn.Module] = [self.policy]
        self._tensors: list[Tensor] = []
        self._take_watch(Watch(self._modules))

    def _take_watch(self, watch: Watch, has_own_code: bool = False) -> None:
        """Check a series of actions by this watch; in full at each action where a program's own code acts."""
        self._watch, self._in_series = watch, watch.unchanged if has_own_code else watch.current
        self._is_current = self._in_series


def kind_of(observations: Any) -> Any:
    """Returns the properties that observations of one program have in common."""
    if type(observations) is np.ndarray:
        return observations.shape, observations.dtype
    if isinstance(observations, Mapping):
        return tuple((key, kind_of(part)) for key, part in observations.items())
    return np.shape(observations)


class _Plan:
    """The program of a policy for inputs of one kind, in arrays that are allocated once.

    Args:
        policy: the policy that acts.
        observations: [B, ...] an example.
        deterministic: the likeliest actions rather than a sample.
        masks: an example, or ``None``.
        state: an example, or ``None``.

    Raises:
        UntraceableError: torch has to act.
    """

    def __init__(
        self,
        policy: Policy,
        observations: Any,
        deterministic: bool,
        masks: np.ndarray | None,
        state: Mapping[str, Tensor] | None,
    ) -> None:
        seen = Seen(policy, observations)
        allowed = None if masks is None else torch.as_tensor(masks).clone()
        before = None if state is None else {name: value.clone() for name, value in state.items()}
        rows = n_rows(seen.tensors)

        def decide() -> Decision:
            noise = None if deterministic else policy.draw_noise(rows)
            return policy.decide(seen.tensors, noise, before, allowed)

        self._read, self._state = seen.read, before or {}
        self._masks = [mask.numpy() for mask in parts(allowed)]
        inputs = [*parts(seen.tensors), *parts(before), *parts(allowed)]
        self.program = TracedProgram(decide, inputs)
        outcome: Decision = self.program.result
        self._actions, self._after = outcome.actions.numpy(), outcome.state
        self._extras = {name: value.numpy() for name, value in outcome.extras.items()}
        self._calls = self.program.calls

    def __call__(self, observations: Any, masks: np.ndarray | None, state: Mapping[str, Tensor] | None) -> Decided:
        """See :meth:`polyak.nn.backends.eager.Eager.__call__`."""
        self._read(observations)
        for kept in self._masks:
            kept[...] = masks
        given = state or {}
        for name, memory in self._state.items():
            memory.copy_(given[name])
        for call in self._calls:
            call()
        extras = {name: value.copy() for name, value in self._extras.items()}
        after = None if self._after is None else {name: value.clone() for name, value in self._after.items()}
        return self._actions.copy(), extras, after
