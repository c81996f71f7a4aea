"""The episodes that a model's environments are in: new ones, those that go on, and which choices they allow."""

from typing import Any

import numpy as np

from polyak.distributed.runners import envs_of_runners
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import KEY, Masks
from polyak.seeding import derived_seed

_FURTHER_EPISODES = 1
"""Sets the seeds of environments apart from those of evaluations after as many steps."""


def take_up(model: Any, reset: bool) -> None:
    """Begins new episodes, or goes on with those that are under way; ``reset``: counters began at zero."""
    if model.runner is None:  # a subclass has set itself up otherwise
        model._make_runner()
    unknown = model.runner.obs is None
    if reset or unknown or model.runner.interrupted:
        if unknown and not reset:
            seed_further(model)
        model._start_episodes()
    model._would_replay = False


def seed_further(model: Any) -> None:
    """Lets a training that continues from a file begin with other episodes than at its start: those that follow from
    the seed and the number of steps. Seeds that the environments have been given since then stay."""
    env = model.env.unwrapped
    if model._would_replay and model.seed is not None and env._seeds[:1] == [model.seed]:
        env.seed(derived_seed(model.seed, model.num_timesteps, _FURTHER_EPISODES))
    model._would_replay = False


def begin(model: Any) -> None:
    """Resets the environments, in the middle of an episode if need be."""
    for part in model.parts.values():
        part.end_episodes()
    known = model.runner.env.masked
    model.runner.reset()
    if model.runner.env.masked and not known:
        masks_found(model)
    elif not known and (masks := model._masks()) is not None:
        use_masks(model, masks)


def use_masks(model: Any, masks: Masks) -> None:
    """Lets these say which choices the environments allow, which was not known before."""
    rows = model.runner.env
    assert isinstance(rows, FromVecEnv)
    rows.masks = masks
    if model.runner.obs is not None:
        model.runner.allowed = masks.after_reset(model.runner.stored_obs)
    masks_found(model)


def masks_found(model: Any) -> None:
    """The first reset has shown that environments say which choices they allow."""
    for part in model.parts.values():
        part.find_masks()


def take_masks(model: Any, allowed: np.ndarray) -> None:
    """Finds where environments say which choices they allow, which those that say it in infos have not shown yet.

    Args:
        model: has them.
        allowed: [N, M] what they have said of the observations in hand.
    """
    if (remote := envs_of_runners(model.env)) is not None:
        remote.masked = True
        masks_found(model)
        return
    model.env.unwrapped.reset_infos = [{KEY: row} for row in allowed.astype(bool)]
    if (masks := model._masks()) is not None:
        use_masks(model, masks)


def lost(model: Any) -> None:
    """Some ended without a last step, with the process that made them."""
    for part in model.parts.values():
        part.lose_episodes()
