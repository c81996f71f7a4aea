"""Evaluation that applies masks unless switched off, and masks of environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from polyak.callbacks.evaluating import EvalCallback
from polyak.envs import VecEnv
from polyak.envs.validation import MASKS
from polyak.evaluation import in_environments as evaluation

EXPECTED_METHOD_NAME = MASKS


def is_masking_supported(env: gym.Env | VecEnv) -> bool:
    """Whether an environment has a method ``action_masks()``; for a vector, whether each of them has."""
    return env.has_attr(MASKS) if isinstance(env, VecEnv) else env.has_wrapper_attr(MASKS)


def get_action_masks(env: gym.Env | VecEnv) -> np.ndarray:
    """Returns the present masks of an environment, [M], or of a vector, [N, M]."""
    if isinstance(env, VecEnv):
        return np.stack(env.env_method(MASKS))
    return env.get_wrapper_attr(MASKS)()


def evaluate_policy(
    model: Any,
    env: gym.Env | VecEnv,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: evaluation.EvalCallbackFn | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    use_masking: bool = True,
) -> tuple[float, float] | tuple[list[float], list[int]]:
    """See :func:`polyak.evaluation.in_environments.evaluate_policy`.

    Raises:
        ValueError: ``use_masking``, but the environment has no masks.
    """
    _check_masks(env, use_masking)
    return evaluation.evaluate_policy(
        model,
        env,
        n_eval_episodes,
        deterministic,
        render,
        callback,
        reward_threshold,
        return_episode_rewards,
        warn,
        use_masking=use_masking,
    )


class MaskableEvalCallback(EvalCallback):
    """See :class:`polyak.callbacks.evaluating.EvalCallback`.

    Args:
        args, kwargs: arguments of that class.
        use_masking: apply the masks of the environment.

    Raises:
        ValueError: when evaluating, ``use_masking``, but the environment has no masks.
    """

    def __init__(self, *args: Any, use_masking: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.use_masking = use_masking

    def _evaluate(self) -> tuple[list[float], list[int]]:
        _check_masks(self.eval_env, self.use_masking)
        return super()._evaluate()


def _check_masks(env: gym.Env | VecEnv, use_masking: bool) -> None:
    if use_masking and not is_masking_supported(env):
        raise ValueError(
            f"use_masking=True needs an environment that says which choices it allows, but {env} has no method "
            "action_masks(). Wrap it in ActionMasker, or pass use_masking=False."
        )
