"""A policy's return from a dataset's episodes and the probabilities of their actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from polyak.data import Dataset
from polyak.data.batch import ArrayObs
from polyak.evaluation.off_policy.bootstrap import Estimate, bootstrap
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.experience.arrays import mapped
from polyak.ops import importance_sampling as ops

Method = Literal["is", "wis", "pdis", "wpdis", "dr", "wdr"]


class Critic(Protocol):
    """Values of the evaluated policy, such as those of FQE or of a model of the environment."""

    def q_values(self, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
        """Of actions [N, ...] in N states: [N] or, by several critics, [K, N]."""
        ...

    def values(self, observations: ArrayObs) -> np.ndarray:
        """Of states under the policy: [N] or [K, N]."""
        ...


def estimate_from_ratios(
    policy: Any,
    dataset: Dataset,
    method: Method = "wpdis",
    *,
    behaviour: Any = None,
    critic: Critic | None = None,
    gamma: float = 0.99,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The return of a stochastic policy from the initial states of a dataset's episodes, over their lengths.

    ================  =============================================================================================
    ``"is"``          importance sampling of whole episodes: unbiased, and of enormous variance
    ``"wis"``         the same, weighted: within the range of the recorded returns
    ``"pdis"``        each reward by the ratios up to it: unbiased, of less variance
    ``"wpdis"``       the same, weighted
    ``"dr"``          doubly robust: a critic's values, corrected by weighted TD errors
    ``"wdr"``         the same, weighted
    ================  =============================================================================================

    Rewards end where an episode was truncated; doubly robust methods continue with the critic's value. In all methods
    ratios multiply over the steps of an episode: :attr:`Estimate.effective_size` shows how much of the data counts.

    Args:
        policy: a model that has a distribution of actions.
        dataset: episodes of the behaviour policy.
        method: see above.
        behaviour: the behaviour policy, or a clone of it; ``None``: the dataset's column ``"log_probs"``
            [N] has the log-probabilities of its actions, in the units of :func:`~.densities.log_prob_of`.
        critic: of ``policy``, for the doubly robust methods: an FQE trained on other episodes if possible.
        gamma: discount of one step.
        confidence: level of the interval, over episodes drawn again.
        n_resamples: number of resamples.
        seed: of those draws.

    Raises:
        ValueError: an unknown method, no critic for one that takes it, no probabilities of the behaviour, or such that
            contradict the data.
        NotApplicableError: a policy without a distribution.
        ImportError: scipy is missing.
    """
    if method not in get_args(Method):
        raise ValueError(f"method={method!r} is unknown: use one of {', '.join(map(repr, get_args(Method)))}.")
    if (critic is not None) != method.endswith("dr"):
        fix = "takes no critic: leave it out." if critic is not None else "needs one: a trained FQE of the policy."
        raise ValueError(f"critic={critic!r:.60}, but method={method!r} {fix}")
    ratios = log_ratios_of(policy, dataset, behaviour)
    log_ratios, rewards = (padded(dataset, column) for column in (ratios, dataset.rewards))
    arguments: dict[str, Any] = {"log_ratios": log_ratios, "rewards": rewards, "gamma": gamma}
    if critic is not None:
        arguments |= dict(zip(("q", "v"), critic_arrays(critic, dataset), strict=True))
    return _with_interval(method, arguments, confidence, n_resamples, seed)


_TERMS: dict[str, Callable[..., Tensor]] = {
    "is": ops.importance_sampling,
    "pdis": ops.per_decision,
    "dr": ops.doubly_robust,
}
_WEIGHTED: dict[str, Callable[..., Tensor]] = {
    "wis": ops.weighted_importance_sampling,
    "wpdis": ops.weighted_per_decision,
    "wdr": ops.weighted_doubly_robust,
}


def _with_interval(method: str, arguments: dict[str, Any], confidence: float, n_resamples: int, seed: int) -> Estimate:
    n = len(arguments["rewards"])
    if method in _TERMS:
        terms = _TERMS[method](**arguments)

        def statistic(counts: np.ndarray) -> np.ndarray:
            return (torch.from_numpy(counts) @ terms / n).numpy()
    else:

        def statistic(counts: np.ndarray) -> np.ndarray:
            return _WEIGHTED[method](**arguments, counts=torch.from_numpy(counts)).numpy()

    low, high = bootstrap(statistic, n, confidence, n_resamples, seed)
    value, size = statistic(np.ones((1, n))), ops.effective_size(arguments["log_ratios"])
    return Estimate(float(value[0]), low, high, confidence, n, float(size))


def log_ratios_of(policy: Any, dataset: Dataset, behaviour: Any = None) -> np.ndarray:
    """log pi(a|s) - log b(a|s) of every transition: [N] float64. See :func:`estimate_from_ratios`."""
    observations = mapped(lambda array: array[acted_on(dataset)], dataset.observations)
    taken = (
        _log_probs_of_behaviour(dataset) if behaviour is None else log_prob_of(behaviour, observations, dataset.actions)
    )
    if (bad := np.flatnonzero(~np.isfinite(taken))).size:
        raise ValueError(
            f"row {bad[0]}: the behaviour gave the action the log-probability {taken[bad[0]]}, but it was taken. Pass "
            "another behaviour, such as a stochastic clone (BC)."
        )
    return log_prob_of(policy, observations, dataset.actions) - taken


def _log_probs_of_behaviour(dataset: Dataset) -> np.ndarray:
    if "log_probs" not in dataset.columns:
        raise ValueError(
            f"behaviour=None, and the dataset has no column 'log_probs', only {sorted(dataset.columns)}: pass the "
            "model that acted, or a clone of it (BC), as behaviour."
        )
    column = np.asarray(dataset.columns["log_probs"], np.float64)
    if column.size != len(dataset):
        raise ValueError(
            f"the column 'log_probs' has shape {column.shape}: it must hold one number a step, [{len(dataset)}]."
        )
    return column.reshape(-1)


def acted_on(dataset: Dataset) -> np.ndarray:
    """[N] indices of the dataset's observations in which an action was taken."""
    return np.arange(len(dataset)) + dataset.episode_numbers


def initial_observations(dataset: Dataset) -> Any:
    """[E, ...] the first of each episode."""
    return mapped(lambda array: array[dataset.starts + np.arange(dataset.n_episodes)], dataset.observations)


def padded(dataset: Dataset, column: np.ndarray, steps: int | None = None) -> Tensor:
    """A number for each step [N] -> [E, T] float64, 0 after the end of an episode."""
    steps = int(dataset.lengths.max()) if steps is None else steps
    out = np.zeros((dataset.n_episodes, steps))
    out[dataset.episode_numbers, dataset.timesteps] = column
    return torch.from_numpy(out)


def critic_arrays(critic: Critic, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """A critic's values of recorded actions [E, T] and of states [E, T + 1]; 0 for terminal states."""
    q = padded(
        dataset, _mean(critic.q_values(mapped(lambda a: a[acted_on(dataset)], dataset.observations), dataset.actions))
    )
    values = _mean(critic.values(dataset.observations))
    v = padded(dataset, values[acted_on(dataset)], q.shape[1] + 1)
    last = dataset.ends + np.arange(dataset.n_episodes)
    v[np.arange(dataset.n_episodes), dataset.lengths] = torch.from_numpy(values[last] * ~dataset.terminated)
    return q, v


def _mean(values: np.ndarray) -> np.ndarray:
    """[N], or of several critics [K, N], as [N] float64."""
    array = np.asarray(values, np.float64)
    return array if array.ndim == 1 else array.mean(0)
