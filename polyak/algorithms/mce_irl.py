"""Maximum causal entropy inverse reinforcement learning (MCE IRL), for tables.

Ziebart 2010, "Modeling Purposeful Adaptive Behavior with the Principle of Maximum Causal Entropy", PhD thesis, Carnegie
Mellon University, which algorithm numbers refer to; Ziebart et al. 2008, "Maximum Entropy Inverse Reinforcement
Learning", AAAI. A review of both: Gleave and Toyer 2022, arXiv:2203.11409.

Shapes: S states, A actions, F features of a state, T steps of an episode. All in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from polyak.algorithms.imitation.reward import RewardFunction
from polyak.arrays import Flags, Memory, Predicted
from polyak.envs.tabular.process import FiniteProcess
from polyak.experience import Dataset
from polyak.hyperparameters.declaration import require
from polyak.nn.networks.rewards import RewardNet
from polyak.nn.policies.base import check_starts
from polyak.warning import warn_user

# -- exact planning ----------------------------------------------------------------------------------------------------


def soft_value_iteration(
    transitions: Tensor, reward: Tensor, gamma: float, horizon: int | None, tolerance: float = 1e-12
) -> SoftPlan:
    """V(s) = log sum_a exp(r(s) + gamma E[V(s')]), algorithm 9.1: exact. transitions [S, A, S], reward [S] -> plan

    Args:
        transitions: probabilities of next states.
        reward: per step in a state.
        gamma: discount.
        horizon: T; None: infinite, which requires ``gamma < 1``.
        tolerance: for an infinite horizon: largest error of values [S], relative to the largest value.
    """
    values = torch.zeros_like(reward)
    policies = []
    while True:
        q = reward[:, None] + gamma * (transitions @ values)
        after = q.logsumexp(1)
        policies.append((q - after[:, None]).exp())
        moved, values = (after - values).abs().max(), after
        if horizon is not None:
            if len(policies) == horizon:
                return SoftPlan(torch.stack(policies[::-1]), values)
        else:
            policies = policies[-1:]
            if moved * gamma <= tolerance * (1 - gamma) * (1 + values.abs().max()):
                return SoftPlan(policies[0], values)


def occupancy(transitions: Tensor, policy: Tensor, initial: Tensor, gamma: float) -> Tensor:
    """sum_t gamma^t P(s_t = s), algorithm 9.3: exact. transitions [S, A, S], initial [S] -> [S]

    With a stationary policy [S, A] over an infinite horizon, by a linear system; with one [T, S, A] over its T steps.
    """
    if policy.dim() == 2:
        moves = torch.einsum("sa,sat->st", policy, transitions)
        return torch.linalg.solve(torch.eye(len(initial), dtype=initial.dtype) - gamma * moves.T, initial)
    total, now = torch.zeros_like(initial), initial
    for t, choice in enumerate(policy):
        total = total + gamma**t * now
        now = torch.einsum("s,sa,sat->t", now, choice, transitions)
    return total


def demonstrated_occupancy(dataset: Dataset, n_states: int, gamma: float, horizon: int | None) -> Tensor:
    """Mean over episodes of sum_t gamma^t [s_t = s]. Observations are state indices -> [S]

    Terminal states are absorbing for the remaining time. A truncated episode covers the time until its end; for an
    infinite horizon, its occupancy is rescaled to stand for the rest.

    Raises:
        ValueError: an episode was truncated before ``horizon`` steps.
    """
    total = np.zeros(n_states)
    for number, episode in enumerate(dataset.episodes()):
        states = np.asarray(episode.observations).reshape(-1).astype(np.int64)
        steps = len(states) - 1 if horizon is None else min(horizon, len(states) - 1)
        weights = gamma ** np.arange(steps)
        np.add.at(total, states[:steps], weights)
        if horizon is not None and steps < horizon:
            require(
                episode.terminated,
                "horizon",
                horizon,
                f"episode {number} was cut short after {steps} steps. Use at most {steps}, or leave it out.",
            )
            total[states[-1]] += (gamma ** np.arange(steps, horizon)).sum()
        elif horizon is None:
            left = gamma**steps / (1 - gamma)
            if episode.terminated:
                total[states[-1]] += left
            else:
                scale = 1 / ((1 - gamma) * weights.sum()) - 1
                np.add.at(total, states[:steps], weights * scale)
    return torch.from_numpy(total / dataset.n_episodes)


def tabular_model(env: gym.Env | Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns transition probabilities [S, A, S] and initial state probabilities [S] of a tabular environment.

    Examples are Gymnasium's FrozenLake, CliffWalking and Taxi. Terminal states become absorbing.

    Raises:
        ValueError: the environment has no transition table.
    """
    if getattr(env.unwrapped, "P", None) is None or getattr(env.unwrapped, "initial_state_distrib", None) is None:
        raise ValueError(f"env={env!r} has no table of its own: pass transitions [S, A, S] and initial [S] yourself.")
    process = FiniteProcess.of(env)
    transitions = np.zeros((process.n_states * process.n_actions, process.n_states))
    np.add.at(transitions, (process.pairs, process.successors), process.chances)
    found = transitions.reshape(process.n_states, process.n_actions, process.n_states)
    ends = np.unique(process.successors[process.ends])
    found[ends] = np.eye(process.n_states)[ends][:, None]
    return found, process.starts


class SoftPlan(NamedTuple):
    """A soft-optimal policy, in which actions of equal value have equal probability."""

    policy: Tensor
    """[T, S, A] probabilities at each time, or [S, A] for an infinite horizon."""
    values: Tensor
    """[S] expected rewards plus causal entropy from the start on."""


# -- the algorithm -----------------------------------------------------------------------------------------------------


class MCEIRL:
    """Finds the reward, linear in state features, for which the expert's behaviour is most likely.

    Of all policies with the expert's mean features, the one of maximum causal entropy is soft-optimal for some weights;
    those minimise the convex E[V(s_0)] - weights . (expert's features), whose gradient is the difference of mean
    features, chapter 6. It is minimised by torch's L-BFGS with a strong Wolfe line search.

    Args:
        transitions: [S, A, S] probabilities of next states; terminal states are absorbing.
        initial: [S] initial state probabilities.
        features: [S, F]; None: a separate reward for each state.
        horizon: T steps of an episode; None: infinite, which requires ``gamma < 1``.
        gamma: discount.
        tolerance: largest difference of a mean feature at convergence.
        weight_decay: weight of half the sum of squared weights in the objective: bounds the weights if the expert never
            visits some features, at the cost of a difference of features.
        max_iterations: of L-BFGS.

    Attributes:
        weights: [F] float64.
        policy: [T, S, A] or [S, A] probabilities.
        gap: largest difference between a mean feature of policy and expert.

    Raises:
        ValueError: an argument has the wrong shape, is out of range, or holds no probabilities.
    """

    def __init__(
        self,
        transitions: np.ndarray,
        initial: np.ndarray,
        features: np.ndarray | None = None,
        *,
        horizon: int | None = None,
        gamma: float = 1.0,
        tolerance: float = 1e-4,
        weight_decay: float = 0.0,
        max_iterations: int = 1000,
    ) -> None:
        self.transitions = torch.as_tensor(np.asarray(transitions, np.float64))
        self.initial = torch.as_tensor(np.asarray(initial, np.float64))
        shape = tuple(self.transitions.shape)
        fix = "it must be [S, A, S], probabilities whose last axis sums to 1."
        require(len(shape) == 3 and shape[0] == shape[2], "transitions", shape, fix)
        sums = self.transitions.sum(2)
        require(
            bool(((sums - 1).abs() < 1e-6).all()) and bool((self.transitions >= 0).all()), "transitions", shape, fix
        )
        self.n_states, self.n_actions = shape[:2]
        proper = tuple(self.initial.shape) == (self.n_states,) and abs(float(self.initial.sum()) - 1) < 1e-6
        require(proper and bool((self.initial >= 0).all()), "initial", initial, f"probabilities of {shape[0]} states.")
        found = np.eye(self.n_states) if features is None else np.asarray(features, np.float64)
        fix = f"it must be [S, F] with S={self.n_states}."
        require(found.ndim == 2 and len(found) == self.n_states, "features", found.shape, fix)
        self.features = torch.as_tensor(found)
        require(horizon is None or horizon >= 1, "horizon", horizon, "it must be at least 1, or None.")
        fix = "it must lie in [0, 1], and below 1 without a horizon."
        require(0 <= gamma <= 1 and (horizon is not None or gamma < 1), "gamma", gamma, fix)
        for name, value in (("tolerance", tolerance), ("weight_decay", weight_decay)):
            require(value >= 0, name, value, "it must be at least 0.")
        self.horizon, self.gamma, self.tolerance = horizon, gamma, tolerance
        self.weight_decay, self.max_iterations = weight_decay, max_iterations
        self.weights = torch.zeros(self.features.shape[1], dtype=torch.float64)
        self.gap = float("inf")
        self._plan()

    def learn(self, demonstrations: Dataset | np.ndarray) -> Self:
        """Find the weights.

        Args:
            demonstrations: a dataset whose observations are state indices, or the expert's occupancy of states [S]: the
                mean of sum_t gamma^t [s_t = s].

        Returns:
            the model itself. It warns if differences of features remain after ``max_iterations``.

        Raises:
            ValueError: unknown states, or an episode truncated before the horizon.
        """
        expert = self._occupancy_of(demonstrations) @ self.features
        weights = self.weights.clone().requires_grad_()
        optimizer = torch.optim.LBFGS(
            [weights],
            max_iter=self.max_iterations,
            tolerance_grad=self.tolerance,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            self.weights = weights.detach().clone()
            values = self._plan()
            pull = self.weight_decay * self.weights
            weights.grad = self.mean_features() - expert + pull
            return self.initial @ values - self.weights @ expert + 0.5 * (pull @ self.weights)

        optimizer.step(closure)
        self.weights = weights.detach().clone()
        self._plan()
        left = self.mean_features() - expert
        self.gap = float(left.abs().max())
        unsolved = float((left + self.weight_decay * self.weights).abs().max())
        if unsolved > self.tolerance:
            warn_user(
                f"after {self.max_iterations} iterations a mean feature is still {unsolved:.3g} from where it should "
                f"be, more than tolerance={self.tolerance:g}. Features that the expert alone has call for infinite "
                "rewards: use weight_decay=1e-3, say, or more max_iterations."
            )
        return self

    def _plan(self) -> Tensor:
        """Computes the policy of the present weights, and returns the values [S]."""
        self.policy, values = soft_value_iteration(
            self.transitions, self.features @ self.weights, self.gamma, self.horizon
        )
        return values

    def mean_features(self) -> Tensor:
        """Returns the policy's expected features [F], exactly: E[sum_t gamma^t f(s_t)]."""
        return occupancy(self.transitions, self.policy, self.initial, self.gamma) @ self.features

    def _occupancy_of(self, demonstrations: Dataset | np.ndarray) -> Tensor:
        if isinstance(demonstrations, Dataset):
            states = np.asarray(demonstrations.observations)
            fix = f"observations must be numbers of states below {self.n_states}."
            fits = states.dtype.kind in "iu" and states.ndim == 1 and states.min() >= 0 and states.max() < self.n_states
            require(fits, "demonstrations", demonstrations, fix)
            return demonstrated_occupancy(demonstrations, self.n_states, self.gamma, self.horizon)
        found = torch.as_tensor(np.asarray(demonstrations, np.float64))
        fix = f"an occupancy must have shape ({self.n_states},)."
        require(tuple(found.shape) == (self.n_states,), "demonstrations", tuple(found.shape), fix)
        return found

    @property
    def state_rewards(self) -> np.ndarray:
        """[S] the learned reward of each state."""
        return (self.features @ self.weights).numpy()

    @property
    def reward(self) -> RewardFunction:
        """The learned reward, for :func:`~polyak.envs.with_reward`: of the state that a step starts from."""
        seen, acted = spaces.Discrete(self.n_states), spaces.Discrete(self.n_actions)
        arguments: dict[str, Any] = {"use_action": False, "net_arch": []}
        network = RewardNet(seen, acted, **arguments)
        layer: Any = network.network[0]
        with torch.no_grad():
            layer.weight.copy_((self.features @ self.weights)[None])
            layer.bias.zero_()
        return RewardFunction(network, "logit", arguments)

    def predict(
        self, observation: Any, state: Memory = None, episode_start: Flags = None, deterministic: bool = False
    ) -> Predicted:
        """Returns the action in one state or a batch of them.

        Args:
            observation: state index, or indices [N].
            state: with a horizon: the elapsed steps of each episode [N], as returned by the last call.
            episode_start: [N] where a new episode begins.
            deterministic: the most likely action instead of a sample.

        Raises:
            ValueError: an unknown state, or ``state`` or ``episode_start`` of another length.
        """
        states = np.atleast_1d(observation).astype(np.int64)
        fix = f"states have the numbers 0 to {self.n_states - 1}."
        fits = np.all((states == np.atleast_1d(observation)) & (states >= 0) & (states < self.n_states))
        require(bool(fits), "observation", observation, fix)
        if episode_start is not None:
            check_starts(episode_start, len(states))
        times = np.zeros(len(states), np.int64) if state is None else np.asarray(state[0])
        fix = f"it must hold how many steps are over in each of {len(states)} episodes: pass what predict() returned."
        require(times.shape == (len(states),), "state", state, fix)
        if episode_start is not None:
            times = np.where(episode_start, 0, times)
        if self.horizon is None:
            chances = self.policy[states]
        else:
            chances = self.policy[np.minimum(times, self.horizon - 1), states]
        actions = chances.argmax(1) if deterministic else torch.multinomial(chances, 1).squeeze(1)
        after = None if self.horizon is None else (times + 1,)
        return actions.numpy().reshape(np.shape(observation)), after
