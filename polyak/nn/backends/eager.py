"""A policy's graph run eagerly in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.nn.policies.base import Decision, Policy, State, n_rows

Decided = tuple[np.ndarray, dict[str, np.ndarray], State | None]
"""The result of a policy for B observations, in new arrays: actions [B, ...] in the network's units; further columns to
store, by name [B, ...]; the recurrent state after the step, ``None`` for a policy without one."""


class Eager:
    """Runs a policy line by line in torch: a breakpoint in the policy's code is hit at each action.

    Args:
        policy: the policy that acts.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def decide(self) -> Callable[..., Decision]:
        """:meth:`~polyak.nn.policies.base.Policy.decide`, or a replacement."""
        return self.policy.decide

    def prepare(self, observations: Any) -> None:
        """Does nothing: this backend keeps nothing from one action to the next."""

    def begin(self) -> None:
        """Does nothing: see :meth:`prepare`."""

    @torch.no_grad()
    def __call__(
        self,
        observations: Any,
        deterministic: bool = False,
        masks: np.ndarray | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> Decided:
        """Actions, with random numbers from torch's generator.

        Args:
            observations: [B, ...] or a dict of such, as environments return them.
            deterministic: the likeliest actions rather than a sample.
            masks: [B, M] bool, which choices are allowed; ``None``: all.
            state: the recurrent state before the step, for a policy with one.

        Raises:
            PolicyError: masks for a policy that does not support them.
            ValueError: an observation is of another shape than the policy's space, or too large for float32.
        """
        policy = self.policy
        tensors = policy.obs_to_tensor(observations)[0]
        allowed = None if masks is None else torch.as_tensor(masks, device=policy.device)
        noise = None if deterministic else policy.draw_noise(n_rows(tensors))
        outcome = self.decide(tensors, noise, None if state is None else dict(state), allowed)
        extras = {name: value.numpy(force=True) for name, value in outcome.extras.items()}
        return outcome.actions.numpy(force=True), extras, outcome.state


class InTensors(Eager):
    """Maps observations, masks and state in tensors to actions in tensors. The host reads no values of them."""

    @torch.no_grad()
    def __call__(
        self,
        observations: Any,
        deterministic: bool = False,
        masks: Any = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> Any:
        """Computes what :meth:`Eager.__call__` does, but returns actions and further columns as tensors."""
        noise = None if deterministic else self.policy.draw_noise(n_rows(observations))
        return self.decide(observations, noise, None if state is None else dict(state), masks)
