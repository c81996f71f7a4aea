"""The episodes of a model's environments: starting, continuing, and their action masks."""

from typing import Any

import numpy as np

from polyak.distributed.runners import envs_of_runners
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import KEY, Masks
from polyak.seeding import derived_seed

_FURTHER_EPISODES = 1
"""Stream of derived seeds for training, distinct from those of evaluations at the same step."""


def take_up(model: Any, reset: bool) -> None:
    """Begins new episodes, or continues those under way; ``reset``: the counters were set to zero."""
    if model.runner is None:  # a subclass may have skipped the usual setup
        model._make_runner()
    unknown = model.runner.obs is None
    if reset or unknown or model.runner.interrupted:
        if unknown and not reset:
            seed_further(model)
        model._start_episodes()
    model._would_replay = False


def seed_further(model: Any) -> None:
    """Seeds a training that continues from a file with other episodes than at its start: their seeds follow from the
    model's seed and the number of steps. Seeds that were set since loading are kept."""
    env = model.env.unwrapped
    if model._would_replay and model.seed is not None and env._seeds[:1] == [model.seed]:
        env.seed(derived_seed(model.seed, model.num_timesteps, _FURTHER_EPISODES))
    model._would_replay = False


def begin(model: Any) -> None:
    """Resets the environments, even in the middle of an episode."""
    for part in model.parts.values():
        part.end_episodes()
    known = model.runner.env.masked
    model.runner.reset()
    if model.runner.env.masked and not known:
        masks_found(model)
    elif not known and (masks := model._masks()) is not None:
        use_masks(model, masks)


def use_masks(model: Any, masks: Masks) -> None:
    """Uses action masks that were unknown before."""
    rows = model.runner.env
    assert isinstance(rows, FromVecEnv)
    rows.masks = masks
    if model.runner.obs is not None:
        model.runner.allowed = masks.after_reset(model.runner.stored_obs)
    masks_found(model)


def masks_found(model: Any) -> None:
    """Prepares the model's parts for action masks, after the first reset has shown that the environments give them."""
    for part in model.parts.values():
        part.find_masks()


def take_masks(model: Any, allowed: np.ndarray) -> None:
    """Sets up the action masks of environments that give them in infos only, before they are reset.

    Args:
        model: its environments.
        allowed: [N, M] the masks of the current observations.
    """
    if (remote := envs_of_runners(model.env)) is not None:
        remote.masked = True
        masks_found(model)
        return
    model.env.unwrapped.reset_infos = [{KEY: row} for row in allowed.astype(bool)]
    if (masks := model._masks()) is not None:
        use_masks(model, masks)


def lost(model: Any) -> None:
    """Tells the model's parts that episodes ended without a last step, since their process was lost."""
    for part in model.parts.values():
        part.lose_episodes()
