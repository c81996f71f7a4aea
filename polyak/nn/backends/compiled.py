"""A policy's graph compiled by torch: for large networks, where overhead does not dominate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from polyak.nn.backends.eager import Eager
from polyak.nn.policies.base import Decision


class Compiled(Eager):
    """Runs a policy through ``torch.compile``, which builds a program at the first call with each kind of input; that
    takes seconds.

    Args:
        policy: the policy that acts.
    """

    @cached_property
    def decide(self) -> Callable[..., Decision]:
        """The compiled :meth:`~polyak.nn.policies.base.Policy.decide`."""
        return torch.compile(self.policy.decide)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.policy,)  # programs are built again where they are used
