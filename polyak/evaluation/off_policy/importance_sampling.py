"""Importance sampling: a policy's return from a dataset's episodes and the probabilities of their actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from polyak.arrays import mapped
from polyak.evaluation.intervals import mean_interval
from polyak.evaluation.off_policy.estimate import Estimate, of_episodes
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.experience import Dataset
from polyak.experience.batch import ArrayObs
from polyak.ops import importance_sampling as ops
from polyak.warning import warn_user

Method = Literal["is", "wis", "pdis", "wpdis", "dr", "wdr"]


class Critic(Protocol):
    """Values of the evaluated policy, for example from FQE or a model of the environment."""

    def q_values(self, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
        """Returns the Q-values of actions [N, ...] in N states: [N] or, from several critics, [K, N]."""
        ...

    def values(self, observations: ArrayObs) -> np.ndarray:
        """Returns the values of states under the policy: [N] or [K, N]."""
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
) -> Estimate:
    """Returns the return of a stochastic policy from the initial states of a dataset's episodes, over their lengths.

    ================  =============================================================================================
    ``"is"``          importance sampling of whole episodes: unbiased, and of enormous variance
    ``"wis"``         the same, weighted: within the range of the recorded returns
    ``"pdis"``        each reward by the ratios up to it: unbiased, of less variance
    ``"wpdis"``       the same, weighted
    ``"dr"``          doubly robust: a critic's values, corrected by weighted TD errors
    ``"wdr"``         the same, weighted
    ================  =============================================================================================

    Truncated episodes are not continued, except by the critic's value in doubly robust methods. In all methods ratios
    multiply over the steps of an episode: :attr:`Estimate.effective_size` shows how much of the data contributes, and a
    warning is given if it is too little for a reliable interval.

    The interval is that of a mean over episodes, :func:`~polyak.evaluation.intervals.mean_interval`, with degrees of
    freedom by the effective size; weighted methods use pseudo-values of the jackknife (Tukey 1958).

    Args:
        policy: a model with an action distribution.
        dataset: episodes of the behaviour policy.
        method: see above.
        behaviour: the behaviour policy, or a clone of it; ``None``: the dataset's column ``"log_probs"``
            [N] has the log-probabilities of its actions, in the units of :func:`~.densities.log_prob_of`.
        critic: of ``policy``, for the doubly robust methods: an FQE, preferably trained on other episodes.
        gamma: discount of one step.
        confidence: level of the interval, in (0, 1).

    Raises:
        ValueError: an unknown method, a missing critic, no probabilities of the behaviour, or some that contradict the
            data.
        NotApplicableError: a policy without a distribution.
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
    found = estimate(method, arguments, confidence)
    if why := doubts(found, log_ratios):
        warn_user(
            f"the interval of method={method!r} is unreliable: {why}. Record more episodes, or with a behaviour nearer "
            "to the policy; or use fitted Q evaluation (FQE)."
        )
    return found


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


ENOUGH_WEIGHT = 12
"""Effective sizes below this, or below half of fewer than 24 episodes, make intervals unreliable."""
RATIO_LEVEL = 0.9
"""Level of the interval of the mean ratio that must contain 1."""
RATIO_ROUNDING = 0.01
"""Largest distance of the mean ratio from 1 by rounding, for equal policies."""


def estimate(method: Method, arguments: Mapping[str, Any], confidence: float = 0.95) -> Estimate:
    """Returns the estimate of a method from the arguments of its function in :mod:`polyak.ops.importance_sampling`."""
    size = float(ops.effective_size(arguments["log_ratios"]))
    if method in _TERMS:
        return of_episodes(_TERMS[method](**arguments).numpy(), confidence, size=size)
    n, weighted = len(arguments["rewards"]), _WEIGHTED[method]
    value = float(weighted(**arguments))
    pseudo_values = n * value - (n - 1) * weighted(**arguments, leave_one_out=True).numpy()
    return of_episodes(pseudo_values, confidence, value, size)


def doubts(found: Estimate, log_ratios: Tensor) -> str:
    """Returns the reasons why the interval of an estimate from log-ratios [E, T] is unreliable; empty if it is
    reliable."""
    reasons = []
    if found.effective_size < min(ENOUGH_WEIGHT, found.n_episodes / 2):
        reasons.append(
            f"its {found.n_episodes} episodes are worth {found.effective_size:.1f} equally weighted ones (effective "
            "sample size)"
        )
    ratios = log_ratios.sum(1).exp().numpy()
    mean, interval = ratios.mean(), mean_interval(ratios, RATIO_LEVEL)
    if abs(mean - 1) > RATIO_ROUNDING and interval.is_known and not interval.low <= 1 <= interval.high:
        reasons.append(
            f"the mean of their ratios is {mean:.3g}, and should be 1: they do not show all that the policy does"
        )
    return "; and ".join(reasons)


def log_ratios_of(policy: Any, dataset: Dataset, behaviour: Any = None) -> np.ndarray:
    """Returns log pi(a|s) - log b(a|s) of every transition: [N] float64. See :func:`estimate_from_ratios`."""
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
    """Returns the indices [N] of the dataset's observations in which an action was taken."""
    return np.arange(len(dataset)) + dataset.episode_numbers


def initial_observations(dataset: Dataset) -> Any:
    """Returns the first observation of each episode [E, ...]."""
    return mapped(lambda array: array[dataset.starts + np.arange(dataset.n_episodes)], dataset.observations)


def padded(dataset: Dataset, column: np.ndarray, steps: int | None = None) -> Tensor:
    """Reshapes a number per step [N] to [E, T] float64, 0 after the end of an episode."""
    steps = int(dataset.lengths.max()) if steps is None else steps
    out = np.zeros((dataset.n_episodes, steps))
    out[dataset.episode_numbers, dataset.timesteps] = column
    return torch.from_numpy(out)


def critic_arrays(critic: Critic, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """Returns a critic's values of recorded actions [E, T] and of states [E, T + 1]; 0 for terminal states."""
    q = padded(
        dataset, _mean(critic.q_values(mapped(lambda a: a[acted_on(dataset)], dataset.observations), dataset.actions))
    )
    values = _mean(critic.values(dataset.observations))
    v = padded(dataset, values[acted_on(dataset)], q.shape[1] + 1)
    last = dataset.ends + np.arange(dataset.n_episodes)
    v[np.arange(dataset.n_episodes), dataset.lengths] = torch.from_numpy(values[last] * ~dataset.terminated)
    return q, v


def _mean(values: np.ndarray) -> np.ndarray:
    """Averages over critics: [N] or [K, N] -> [N] float64."""
    array = np.asarray(values, np.float64)
    return array if array.ndim == 1 else array.mean(0)
