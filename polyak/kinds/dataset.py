"""Learning from a dataset: instead of an environment, beside it, and before it.

A model that is given a :class:`~polyak.data.Dataset` as its ``env`` learns from that alone, and its time is counted in
gradient steps. Given an environment later (``set_env``), the same model acts: from then on minibatches come from both,
and time is counted in environment steps.
"""

from typing import Any

from polyak.callbacks.callback import BaseCallback, EvalCallback, MaybeCallback
from polyak.data import Dataset
from polyak.hyperparameters.declaration import require
from polyak.kinds.env_algorithm import SpaceError
from polyak.schedules import is_constant

CHUNK = 500
"""Gradient steps between two looks at the clock, where no callback asks for more."""


def check_spaces(dataset: Dataset, model: Any) -> None:
    """Refuse a dataset of other spaces than a model's.

    Raises:
        SpaceError: it has others.
    """
    for what in ("observation_space", "action_space"):
        if getattr(dataset, what) != getattr(model, what):
            raise SpaceError(
                f"dataset has {what}={getattr(dataset, what)}, but the model has {getattr(model, what)}. Use "
                "dataset.for_env(env) with the model's environment."
            )


def learn_from_data(model: Any, callback: BaseCallback, log_interval: int | None) -> bool:
    """Some gradient steps on the dataset alone, where nothing is collected. False: a callback asked to stop."""
    begun, idle = model.num_timesteps, callback.is_idle
    steady = all(is_constant(getattr(model, name, None)) for name in ("learning_rate", *model.learner.dials))
    steps = min(CHUNK - begun % CHUNK, model._total_timesteps - begun) if idle and steady else 1
    with model._split.update:
        model.train(steps, model.batch_size)
    model.num_timesteps += steps
    model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
    if not (idle or callback.on_step()):
        return False
    chunks, rest = divmod(model.num_timesteps, CHUNK)
    if log_interval is not None and rest == 0 and chunks % log_interval == 0:
        model.dump_logs()
    return True


def watched(callback: MaybeCallback, eval_env: Any, eval_freq: int | None, n_eval_episodes: int, steps: int) -> Any:
    """A callback, and an evaluation beside it.

    Args:
        callback: what the user gave.
        eval_env: where to evaluate; ``None``: nowhere.
        eval_freq: steps between two evaluations; ``None``: ten in all.
        n_eval_episodes: episodes of each.
        steps: of the whole training.
    """
    if eval_env is None:
        require(eval_freq is None, "eval_freq", eval_freq, "there is no eval_env to evaluate in.")
        return callback
    freq = max(steps // 10, 1) if eval_freq is None else eval_freq
    evaluation = EvalCallback(eval_env, eval_freq=freq, n_eval_episodes=n_eval_episodes, verbose=0)
    others = callback if isinstance(callback, list) else [] if callback is None else [callback]
    return [*others, evaluation]
