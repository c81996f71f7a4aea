"""Evaluation in the environments of a training, which must then start new episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyak.envs import VecEnv
from polyak.evaluation.undisturbed import learner


def share_environments(one: VecEnv, other: VecEnv) -> bool:
    """Whether an environment of this process belongs to both vectors, below any wrappers."""
    mine, theirs = (
        {id(getattr(env, "unwrapped", env)) for env in (venv.unwrapped, *getattr(venv.unwrapped, "envs", ()))}
        for venv in (one, other)
    )
    return not mine.isdisjoint(theirs)


def check_not_in_use(env: VecEnv) -> None:
    """Refuse environments that a running ``learn`` steps in another thread.

    Raises:
        ValueError: another thread steps them.
    """
    model = learner()
    if getattr(getattr(model, "runner", None), "thread", None) is not None and any(_trained_in(env, model)):
        raise ValueError(
            f"the environment to evaluate in is the training environment, which {type(model).__name__} steps at the "
            "same time, in another thread. Make a second environment for evaluation, or pass asynchronous=False."
        )


def note_use(env: VecEnv, model: Any) -> None:
    """Record that environments were used for evaluation, so that the training of ``model``, and a running training,
    start new episodes if they share them."""
    for venv in _trained_in(env, model, learner()):
        if venv.unwrapped is not env.unwrapped:  # env itself has counted the reset
            venv.unwrapped.resets += 1


def _trained_in(env: VecEnv, *models: Any) -> Iterator[VecEnv]:
    """Yields the vectors that models are trained in, if they share environments with ``env``."""
    vectors = [getattr(model, "env", None) for model in models]
    found = {id(venv.unwrapped): venv for venv in vectors if isinstance(venv, VecEnv)}
    yield from (venv for venv in found.values() if share_environments(env, venv))
