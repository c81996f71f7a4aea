"""A finite Markov decision process as arrays: all outcomes of all state-action pairs, one after the other.

Shape letters: S states, A actions, O outcomes, P = S A pairs of a state and an action, in the order s A + a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, and whether the episode ends there, as in the ``P`` of Gymnasium's toy texts."""

_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class FiniteProcess:
    """The possible outcomes of each action in each state. The outcomes of a pair are adjacent.

    A state that ends the episode has value 0, even if it has rows: termination is a property of outcomes.

    Args:
        n_states, n_actions: S and A.
        first: [P + 1] int64: the outcomes of pair p are ``first[p]`` to ``first[p + 1]``; a pair without any is an
            action that the state does not have.
        chances: [O] their probabilities, which add up to 1 for each pair.
        successors: [O] int64 next states.
        rewards: [O] float64.
        ends: [O] bool: the episode ends there.
        starts: [S] probabilities of first states.
    """

    n_states: int
    n_actions: int
    first: np.ndarray
    chances: np.ndarray
    successors: np.ndarray
    rewards: np.ndarray
    ends: np.ndarray
    starts: np.ndarray

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.n_states} states, {self.n_actions} actions, {len(self.chances)} outcomes>"
        )

    # -- constructors --------------------------------------------------------------------------------------------------

    @classmethod
    def from_outcomes(
        cls, outcomes: Mapping[int, Mapping[int, Sequence[Outcome]]], starts: Any = None, n_actions: int | None = None
    ) -> FiniteProcess:
        """Builds a process from ``P[state][action] = [(probability, next state, reward, ends), ...]``.

        Args:
            outcomes: the rows of the states 0 to S - 1; a state does not have the actions that its row lacks.
            starts: [S] probabilities of first states; ``None``: each is as likely.
            n_actions: A; ``None``: the largest number of an action, plus 1.

        Raises:
            ValueError: a state or an action has no row, probabilities do not add up to 1, or a number is out of range.
        """
        n_states = len(outcomes)
        if set(outcomes) != set(range(n_states)):
            raise ValueError(f"P must have the states 0 to {n_states - 1} as its keys, got {sorted(outcomes)[:8]} ...")
        named = [action for row in outcomes.values() for action in row]
        n_actions = n_actions or 1 + max(named, default=0)
        if not named or min(named) < 0 or max(named) >= n_actions:
            raise ValueError(f"P must have actions of 0 to {n_actions - 1}, got {sorted(set(named))[:8]}.")
        rows = [outcomes[state].get(action, ()) for state in range(n_states) for action in range(n_actions)]
        first = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        flat = [outcome for row in rows for outcome in row]
        chances, successors, rewards, ends = zip(*flat, strict=True) if flat else ((), (), (), ())
        return cls(
            n_states,
            n_actions,
            first,
            np.array(chances, float),
            np.array(successors, np.int64),
            np.array(rewards, float),
            np.array(ends, bool),
            np.full(n_states, 1 / n_states) if starts is None else np.asarray(starts, float),
        )._checked()

    @classmethod
    def from_arrays(
        cls, transitions: Any, rewards: Any, starts: Any = None, terminal: Sequence[int] = ()
    ) -> FiniteProcess:
        """Builds a process from arrays.

        Args:
            transitions: [S, A, S] probabilities of next states; a row of zeros is an action that the state lacks.
            rewards: [S, A], [S, A, S] or [S], the reward of leaving a state.
            starts: [S] probabilities of first states; ``None``: each that is not terminal is as likely.
            terminal: states that end the episode when they are reached.

        Raises:
            ValueError: an array has another shape, probabilities do not add up to 1, or a number is out of range.
        """
        chances, reward = np.asarray(transitions, float), np.asarray(rewards, float)
        if chances.ndim != 3 or chances.shape[0] != chances.shape[2] or not chances.size:
            raise ValueError(f"transitions must be of shape [S, A, S], got {list(chances.shape)}.")
        n_states, n_actions, _ = chances.shape
        if reward.shape == (n_states,):
            reward = reward[:, None]
        if reward.ndim == 2:
            reward = reward[:, :, None]
        try:
            reward = np.broadcast_to(reward, chances.shape)
        except ValueError:
            shape = list(np.shape(rewards))
            raise ValueError(
                f"rewards must be of shape [S], [S, A] or [S, A, S] with S={n_states} and A={n_actions}, got {shape}."
            ) from None
        over = np.zeros(n_states, bool)
        over[list(terminal)] = True
        if starts is None:
            starts = ~over / max(1, np.count_nonzero(~over))
        states, actions, successors = np.nonzero(chances)
        counts = np.bincount(states * n_actions + actions, minlength=n_states * n_actions)
        return cls(
            n_states,
            n_actions,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            chances[states, actions, successors],
            successors.astype(np.int64),
            reward[states, actions, successors].astype(float),
            over[successors],
            np.asarray(starts, float),
        )._checked()

    @classmethod
    def of(cls, env: Any) -> FiniteProcess:
        """Returns the process of an environment with a table ``P``, such as Gymnasium's toy texts.

        Raises:
            ValueError: it has no table, or an invalid one.
        """
        inner = getattr(env, "unwrapped", env)
        if isinstance(process := getattr(inner, "process", None), cls):
            return process
        table = getattr(inner, "P", None)
        if not isinstance(table, Mapping):
            raise ValueError(
                f"env={inner!r:.80} has no table P of its transitions, so that nothing can be planned. Give it one "
                "(P[state][action] = [(probability, next state, reward, ends), ...]), pass arrays "
                "(transitions, rewards), or learn from experience: QLearning, SARSA."
            )
        return cls.from_outcomes(table, getattr(inner, "initial_state_distrib", None), int(inner.action_space.n))

    def _checked(self) -> FiniteProcess:
        totals = self.per_pair(self.chances)
        has = np.diff(self.first) > 0
        if wrong := np.flatnonzero(has & (np.abs(totals - 1) > _TOLERANCE)).tolist():
            state, action = divmod(wrong[0], self.n_actions)
            raise ValueError(
                f"the probabilities of state {state}, action {action} add up to {totals[wrong[0]]:g}: make it 1."
            )
        if len(idle := np.flatnonzero(~has.reshape(self.n_states, self.n_actions).any(1))):
            raise ValueError(f"state {idle[0]} has no action. A terminal state may go to itself, with reward 0.")
        if len(self.chances) and (self.chances.min() < 0 or not np.isfinite(self.rewards).all()):
            raise ValueError("probabilities must be positive and rewards finite.")
        if len(self.successors) and not 0 <= self.successors.min() <= self.successors.max() < self.n_states:
            raise ValueError(f"next states must be of 0 to {self.n_states - 1}, got {self.successors.max()}.")
        starts = self.starts
        if starts.shape != (self.n_states,) or starts.min() < 0 or abs(starts.sum() - 1) > _TOLERANCE:
            raise ValueError(f"starts must be {self.n_states} probabilities that add up to 1, got {starts}.")
        return self

    # -- derived tables ------------------------------------------------------------------------------------------------

    @property
    def pairs(self) -> np.ndarray:
        """[O] the pair that each outcome belongs to."""
        return np.repeat(np.arange(self.n_states * self.n_actions), np.diff(self.first))

    def per_pair(self, values: np.ndarray) -> np.ndarray:
        """Sums over the outcomes of each pair. values [O] -> [P]"""
        return np.bincount(self.pairs, values, self.n_states * self.n_actions)

    @property
    def legal(self) -> np.ndarray:
        """[S, A] bool: which actions each state has."""
        return (np.diff(self.first) > 0).reshape(self.n_states, self.n_actions)

    @property
    def mean_rewards(self) -> np.ndarray:
        """[S, A] mean immediate rewards."""
        return self.per_pair(self.chances * self.rewards).reshape(self.n_states, self.n_actions)

    @property
    def terminal(self) -> np.ndarray:
        """[S] bool: states in which episodes end, and to which no other state leads otherwise."""
        origins = self.pairs // self.n_actions
        reached, passed = np.zeros((2, self.n_states), bool)
        reached[self.successors[self.ends]] = True
        passed[self.successors[~self.ends & (origins != self.successors)]] = True
        return reached & ~passed

    @property
    def reachable(self) -> np.ndarray:
        """[S] bool: states in which an episode can be."""
        origins = self.pairs // self.n_actions
        possible = (self.chances > 0) & ~self.ends
        found = self.starts > 0
        while True:
            wider = found.copy()
            wider[self.successors[possible & found[origins]]] = True
            if np.array_equal(wider, found):
                return found
            found = wider

    def under(self, policy: Any) -> FiniteProcess:
        """Returns the process under a fixed policy: it has one action, and its values are those of the policy.

        Args:
            policy: [S] actions, or [S, A] their probabilities.

        Raises:
            ValueError: it has another shape, or takes an action that a state does not have.
        """
        policy = np.asarray(policy)
        if policy.shape == (self.n_states,):
            policy = np.eye(self.n_actions)[policy]
        if policy.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"policy must be of shape [{self.n_states}] or [{self.n_states}, {self.n_actions}], "
                f"got {list(policy.shape)}."
            )
        if np.any(policy[~self.legal] != 0):
            raise ValueError("policy takes an action that a state does not have.")
        weights = self.chances * policy.reshape(-1)[self.pairs]
        kept = weights > 0
        counts = np.bincount(self.pairs[kept] // self.n_actions, minlength=self.n_states)
        return FiniteProcess(
            self.n_states,
            1,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            weights[kept],
            self.successors[kept],
            self.rewards[kept],
            self.ends[kept],
            self.starts,
        )._checked()
