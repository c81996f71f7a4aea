"""Small functions, types and constants of Stable-Baselines3 that polyak itself does not use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import zip_longest
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import envs
from polyak.algorithms.trpo import conjugate_gradient
from polyak.arrays import Flags, Memory, Predicted
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import system_info
from polyak.collecting.train_freq import TrainFreq, TrainFrequencyUnit
from polyak.envs import VecEnv
from polyak.envs.nested_spaces import is_nested, parts
from polyak.envs.spaces import is_vectorized_observation
from polyak.experience import GoalSelectionStrategy
from polyak.ops import distributional
from polyak.ops.distributional import midpoints
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule, Schedule
from polyak.warning import warn_user

SB3_VERSION = "2.9.2"
"""The version whose public API is provided."""

KEY_TO_GOAL_STRATEGY = {strategy.name.lower(): strategy for strategy in GoalSelectionStrategy}

# -- types -------------------------------------------------------------------------------------------------------------

GymEnv = gym.Env | VecEnv
GymObs = tuple | dict[str, Any] | np.ndarray | int
GymResetReturn = tuple[GymObs, dict]
AtariResetReturn = tuple[np.ndarray, dict[str, Any]]
GymStepReturn = tuple[GymObs, float, bool, bool, dict]
AtariStepReturn = tuple[np.ndarray, float, bool, bool, dict[str, Any]]
TensorDict = dict[str, Tensor]
OptimizerStateDict = dict[str, Any]
MaybeCallback = None | Callable[..., Any] | list[BaseCallback] | BaseCallback
PyTorchObs = Tensor | TensorDict

is_vectorized_box_observation = is_vectorized_discrete_observation = is_vectorized_observation
is_vectorized_multidiscrete_observation = is_vectorized_multibinary_observation = is_vectorized_observation

__all__ = ["Schedule"]  # the rest is found by name; this one is imported only to be found here


class PolicyPredictor(Protocol):
    """Anything that chooses actions: a model, a policy, a function in a class."""

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
    ) -> Predicted:
        """Returns actions for observations, and the next recurrent state."""


# -- environments ------------------------------------------------------------------------------------------------------


def check_env(env: gym.Env, warn: bool = True, skip_render_check: bool = True) -> None:
    """Calls :func:`polyak.envs.check_env`, and warns of spaces that the peer's algorithms do not support, though
    polyak's do.

    Args:
        env: the environment.
        warn: whether to warn.
        skip_render_check: do not look at ``render_mode`` and ``render()``.

    Raises:
        AssertionError, TypeError: as of :func:`polyak.envs.check_env`.
    """
    for kind in ("observation", "action") if warn else ():
        space = getattr(env, f"{kind}_space", None)
        if isinstance(space, spaces.Space):
            for message in _not_in_peer(space, kind):
                warn_user(message)
    envs.check_env(env, warn, skip_render_check)


def _not_in_peer(space: spaces.Space, kind: str) -> list[str]:
    """Returns the peer's warnings about a space."""
    messages, fault = [], "not supported by Stable-Baselines3, though by polyak's own algorithms"
    if isinstance(space, spaces.Tuple) or (kind == "action" and isinstance(space, spaces.Dict)):
        messages.append(f"The {kind} space is a {type(space).__name__}, {fault}.")
    elif is_nested(space):
        messages.append(f"Nested observation spaces are {fault}: {space}.")
    for part in parts(space):
        where = f" (key {part.name!r})" if part.path else ""
        if np.any(np.asarray(getattr(part.space, "start", 0)) != 0):
            messages.append(f"The {kind} space{where} is {part.space}; starts other than 0 are {fault}.")
        if isinstance(part.space, spaces.MultiDiscrete) and part.space.nvec.ndim > 1:
            messages.append(
                f"The {kind} space{where} is {part.space}; a MultiDiscrete of several dimensions is {fault}."
            )
    return messages


# -- schedules and optimizers ------------------------------------------------------------------------------------------


def get_schedule_fn(value_schedule: Schedule | float) -> FloatSchedule:
    """The former name of :class:`~polyak.schedules.FloatSchedule`."""
    warn_user("get_schedule_fn() is deprecated: use FloatSchedule(value).")
    return FloatSchedule(value_schedule)


def get_linear_fn(start: float, end: float, end_fraction: float) -> Schedule:
    """The former name of :class:`~polyak.schedules.LinearSchedule`."""
    warn_user("get_linear_fn() is deprecated: use LinearSchedule(start, end, end_fraction).")
    return LinearSchedule(start, end, end_fraction)


def constant_fn(val: float) -> Schedule:
    """The former name of :class:`~polyak.schedules.ConstantSchedule`."""
    warn_user("constant_fn() is deprecated: use ConstantSchedule(val).")
    return ConstantSchedule(val)


def update_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of all parameter groups, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


def should_collect_more_steps(train_freq: TrainFreq, num_collected_steps: int, num_collected_episodes: int) -> bool:
    """Whether ``train_freq`` requires more steps or episodes before the next update.

    Raises:
        ValueError: its unit is neither steps nor episodes.
    """
    if train_freq.unit == TrainFrequencyUnit.STEP:
        return num_collected_steps < train_freq.frequency
    if train_freq.unit == TrainFrequencyUnit.EPISODE:
        return num_collected_episodes < train_freq.frequency
    raise ValueError(f"train_freq={tuple(train_freq)}: the unit must be TrainFrequencyUnit.STEP or EPISODE.")


# -- tensors -----------------------------------------------------------------------------------------------------------


def safe_mean(arr: Any) -> float:
    """Returns the mean; nan for nothing."""
    return float(np.mean(arr)) if len(arr) else float("nan")


def zip_strict(*iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yields tuples like ``zip``, but raises an error if the lengths differ.

    Raises:
        ValueError: the lengths differ.
    """
    missing = object()
    for items in zip_longest(*iterables, fillvalue=missing):
        if any(item is missing for item in items):
            raise ValueError("Iterables have different lengths")
        yield items


def get_parameters_by_name(model: torch.nn.Module, included_names: Iterable[str]) -> list[Tensor]:
    """Returns the entries of the state dict whose name contains any of ``included_names``."""
    wanted = list(included_names)
    return [tensor for name, tensor in model.state_dict().items() if any(part in name for part in wanted)]


@torch.no_grad()
def polyak_update(params: Iterable[Tensor], target_params: Iterable[Tensor], tau: float) -> None:
    """Move each target a fraction ``tau`` of the way to its parameter, in place.

    Raises:
        ValueError: there are not as many targets as parameters.
    """
    for source, target in zip_strict(params, target_params):
        target.mul_(1 - tau).add_(source, alpha=tau)


def quantile_huber_loss(
    current_quantiles: Tensor,
    target_quantiles: Tensor,
    cum_prob: Tensor | None = None,
    sum_over_quantiles: bool = True,
) -> Tensor:
    """Returns the mean over rows and critics of :func:`polyak.ops.distributional.quantile_huber_loss`.

    Args:
        current_quantiles: [B, N] or [B, K, N].
        target_quantiles: [B, M], or [B, K, M] or [B, 1, M].
        cum_prob: [..., N, 1], levels of the quantiles; ``None``: (i + 1/2) / N.
        sum_over_quantiles: add up the N quantiles; False takes their mean.

    Raises:
        ValueError: other numbers of axes or rows.
    """
    shapes = current_quantiles.shape, target_quantiles.shape
    if len(shapes[0]) != len(shapes[1]) or len(shapes[0]) not in (2, 3) or shapes[0][0] != shapes[1][0]:
        raise ValueError(
            f"current_quantiles and target_quantiles must be [B, N] and [B, M], or [B, K, N] and [B, K or 1, M], got "
            f"{list(shapes[0])} and {list(shapes[1])}."
        )
    n = shapes[0][-1]
    levels = midpoints(n, current_quantiles.device) if cum_prob is None else cum_prob.squeeze(-1)
    loss = distributional.quantile_huber_loss(current_quantiles, target_quantiles, levels).mean()
    return loss if sum_over_quantiles else loss / n


def flat_grad(
    output: Tensor, parameters: Sequence[Tensor], create_graph: bool = False, retain_graph: bool = False
) -> Tensor:
    """Returns the gradient of ``output`` with respect to those ``parameters`` that it depends on, as one vector."""
    keep = retain_graph or create_graph
    grads = torch.autograd.grad(output, parameters, create_graph=create_graph, retain_graph=keep, allow_unused=True)
    return torch.cat([grad.reshape(-1) for grad in grads if grad is not None])


def conjugate_gradient_solver(
    matrix_vector_dot_fn: Callable[[Tensor], Tensor], b: Tensor, max_iter: int = 10, residual_tol: float = 1e-10
) -> Tensor:
    """x that solves A x = b approximately, from a random start near 0; see
    :func:`polyak.algorithms.trpo.conjugate_gradient`.

    Args:
        matrix_vector_dot_fn: v -> A v, of vectors; A is symmetric.
        b: a vector.
        max_iter: most steps.
        residual_tol: ends once the square of |b - A x| is as small as that.
    """
    return conjugate_gradient(matrix_vector_dot_fn, b, max_iter, residual_tol, near_zero(b), definite=False)


def near_zero(like: Tensor) -> Tensor:
    """Returns the peer's starting point for linear equations: normal draws of standard deviation 1e-4."""
    return 1e-4 * torch.randn_like(like)


def obs_as_tensor(obs: np.ndarray | Mapping[str, np.ndarray], device: torch.device | str) -> Tensor | TensorDict:
    """Converts an observation, or a dict of them, to tensors on ``device``.

    Raises:
        TypeError: neither an array nor a dict.
    """
    if isinstance(obs, np.ndarray):
        return torch.as_tensor(obs, device=device)
    if isinstance(obs, Mapping):
        return {key: torch.as_tensor(value, device=device) for key, value in obs.items()}
    raise TypeError(f"obs must be an array or a dict of arrays, got {type(obs).__name__}.")


# -- attributes -----------------------------------------------------------------------------------------------------


def recursive_getattr(obj: Any, attr: str, *args: Any) -> Any:
    """Applies ``getattr`` along a dotted path."""
    for name in attr.split("."):
        obj = getattr(obj, name, *args)
    return obj


def recursive_setattr(obj: Any, attr: str, val: Any) -> None:
    """Applies ``setattr`` along a dotted path."""
    owner, _, name = attr.rpartition(".")
    setattr(recursive_getattr(obj, owner) if owner else obj, name, val)


# -- the package -------------------------------------------------------------------------------------------------------


def get_system_info(print_info: bool = True) -> tuple[dict[str, str], str]:
    """Returns the versions of the libraries that affect a model, as a dict and as text."""
    own = system_info()
    info = {name: own[name] for name in ("OS", "Python", "polyak", "PyTorch", "Gymnasium")}
    info |= {"Stable-Baselines3": SB3_VERSION, "GPU Enabled": own["GPU"], "Numpy": own["NumPy"]}
    info |= {"Cloudpickle": metadata.version("cloudpickle")}
    text = "".join(f"- {name}: {version}\n" for name, version in info.items())
    if print_info:
        print(text)
    return info, text


def HER(*args: Any, **kwargs: Any) -> None:
    """Raises an error: HER is not an algorithm any more.

    Raises:
        ImportError: always; the message has the replacement.
    """
    raise ImportError(
        "HER is a replay buffer since Stable-Baselines3 1.1: write "
        "SAC('MultiInputPolicy', env, replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=dict(...)). See the "
        "documentation of the replay buffer."
    )


class AsyncEval:
    """A name that programs import. ARS has no use for it: its candidates play in the environments of the model, all at
    once, and in processes if those are a :class:`~polyak.envs.SubprocVecEnv`.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "AsyncEval is not there: ARS lets its candidates play in all environments of the model at once. Give the "
            "model several instead, in processes if need be: make_vec_env(..., n_envs=8, vec_env_cls=SubprocVecEnv)."
        )
