"""The choice of the backend with which a policy acts."""

from __future__ import annotations

from polyak.nn.backends.compiled import Compiled
from polyak.nn.backends.eager import Eager
from polyak.nn.backends.numpy import Numpy
from polyak.nn.policies.base import Policy

BACKENDS: dict[str, type[Eager] | type[Numpy]] = {"compiled": Compiled, "eager": Eager, "numpy": Numpy}


def backend_of(policy: Policy) -> Eager | Numpy:
    """Returns the backend that runs a policy's graph while it acts, by its attribute ``backend``.

    Raises:
        ValueError: there is no such backend.
    """
    if policy.backend not in BACKENDS:
        raise ValueError(f"policy.backend must be one of {sorted(BACKENDS)}, got {policy.backend!r}.")
    return BACKENDS[policy.backend](policy)
