"""Environments whose transitions follow a known table, without further effects.

Such an environment need not be called for each step: a loop over arrays (:mod:`polyak.algorithms.tabular.walking`)
makes many steps at once, and afterwards the environment and its wrappers are set to the last state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.state import layers_of
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.table_env import TableEnv, running
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.monitor import Monitor
from polyak.envs.wrappers.time_feature import time_limit

_TOY_TEXTS = {
    "gymnasium.envs.toy_text.frozen_lake.FrozenLakeEnv",
    "gymnasium.envs.toy_text.cliffwalking.CliffWalkingEnv",
    "gymnasium.envs.toy_text.taxi.TaxiEnv",
}
_HARMLESS = (OrderEnforcing, PassiveEnvChecker, TimeLimit, Monitor)


class World(NamedTuple):
    """A process as arrays for loops. S states, A actions, O outcomes, P = S A pairs."""

    n_actions: int
    first: np.ndarray  # [P + 1] int64
    totals: np.ndarray  # [O] probability of the outcome or one before it of the same pair
    successors: np.ndarray  # [O] int64
    rewards: np.ndarray  # [O]
    ends: np.ndarray  # [O] bool
    starts: np.ndarray  # [S] probability of the state or one before it
    time_limit: int
    """Steps after which an episode is truncated; 0: none."""


class KnownEnvs:
    """N environments of one table, in a :class:`~polyak.envs.DummyVecEnv`.

    Args:
        envs: the environments with their wrappers.
        process: their transitions.
    """

    def __init__(self, envs: list[gym.Env[Any, Any]], process: FiniteProcess) -> None:
        self.envs, self.process = envs, process
        self.legal = _legal(envs[0].unwrapped, process)
        monitors = [[layer for layer in layers_of(env) if isinstance(layer, Monitor)] for env in envs]
        self.monitors = [found[0] if found else None for found in monitors]
        self.time_limit = time_limit(envs[0])

    @classmethod
    def behind(cls, env: VecEnv) -> KnownEnvs | None:
        """Returns the environments of a vector; None if a step may do more than its table describes."""
        if type(env) is not DummyVecEnv or not all(_is_known(single) for single in env.envs):
            return None
        processes = [FiniteProcess.of(single) for single in env.envs]
        limits = [time_limit(single) for single in env.envs]
        alike = all(_same(processes[0], other) for other in processes[1:])
        return cls(env.envs, processes[0]) if alike and all(limit == limits[0] for limit in limits) else None

    def world(self, uniform_starts: bool = False) -> World:
        """The arrays. ``uniform_starts``: episodes begin in each reachable state with the same probability."""
        process = self.process
        starts = process.starts
        if uniform_starts:
            anywhere = process.reachable & ~process.terminal
            starts = anywhere / anywhere.sum() if anywhere.any() else starts
        totals = np.cumsum(starts)
        totals[np.flatnonzero(starts)[-1] :] = 1.0  # despite rounding
        return World(
            process.n_actions,
            process.first,
            running(process),
            process.successors,
            process.rewards,
            process.ends,
            totals,
            int(self.time_limit or 0),
        )

    def put(self, env: int, state: int, action: int | None) -> None:
        """Set the state of an environment, and the action that led to it."""
        inner: Any = self.envs[env].unwrapped
        inner.s, inner.lastaction = state, action

    def put_episode(self, env: int, total: float, length: int) -> None:
        """Set return and length so far of a running episode in an environment's wrappers."""
        layer: Any
        for layer in layers_of(self.envs[env]):
            if isinstance(layer, TimeLimit):
                layer._elapsed_steps = length  # type: ignore[assignment]
            elif isinstance(layer, OrderEnforcing):
                layer._has_reset = True
            elif isinstance(layer, Monitor):
                layer.rewards = [total, *[0.0] * (length - 1)] if length else []
                layer.needs_reset = False

    def note_episode(self, env: int, total: float, length: int) -> dict[str, Any] | None:
        """Record an episode that has ended in the environment's Monitor; returns its entry, if there is a Monitor."""
        monitor = self.monitors[env]
        if monitor is None:
            return None
        monitor.total_steps += length
        return monitor.note_episode(total, length, {})


def _is_known(env: gym.Env[Any, Any]) -> bool:
    *wrappers, inner = layers_of(env)
    kinds = [type(wrapper) for wrapper in wrappers]
    if not all(kind in _HARMLESS for kind in kinds) or max(map(kinds.count, kinds), default=0) > 1:
        return False
    if any(isinstance(w, Monitor) and (w.info_keywords or w.reset_keywords) for w in wrappers):
        return False
    if type(inner) is not TableEnv and f"{type(inner).__module__}.{type(inner).__name__}" not in _TOY_TEXTS:
        return False
    # Taxi's fickle passenger is not in its table; rendering needs each step.
    return not getattr(inner, "fickle_passenger", False) and inner.render_mode != "human"


def _same(one: FiniteProcess, other: FiniteProcess) -> bool:
    return one is other or all(np.array_equal(ours, vars(other)[name]) for name, ours in vars(one).items())


def _legal(inner: Any, process: FiniteProcess) -> np.ndarray:
    """Returns the legal actions of each state [S, A] bool, without those that the environment's masks forbid."""
    legal = process.legal
    if callable(mask := getattr(inner, "action_mask", None)):  # Taxi's
        allowed = np.array([mask(state) for state in range(process.n_states)], bool)
        legal = np.where((legal & allowed).any(1, keepdims=True), legal & allowed, legal)
    return legal
