"""One call of ``learn``, from its arguments to its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol

from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.evaluation.undisturbed import learning
from polyak.hyperparameters.declaration import NonNegative, fitted, require
from polyak.loops.clock import EpisodeWithoutEnd
from polyak.seeding import drawing
from polyak.warning import warn_user

Task = Callable[[], None]


class Loop(Protocol):
    """What happens when, in one call of ``learn``."""

    def iterate(self) -> bool:
        """Collect some experience and learn from it. False: a callback asked to stop."""


class Training:
    """Sets a model up to learn, and ends in order whatever happens.

    Args:
        model: what learns.
        total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar: as in
            :meth:`~polyak.algorithm.Algorithm.learn`.

    Raises:
        ValueError: the model has nothing to learn from, or an argument is out of range.
    """

    def __init__(
        self,
        model: Any,
        total_timesteps: int,
        callback: MaybeCallback,
        log_interval: int | Literal["auto"] | None,
        tb_log_name: str | None,
        reset_num_timesteps: bool,
        progress_bar: bool,
    ) -> None:
        fitted("total_timesteps", total_timesteps, NonNegative)
        log_interval = model.log_every if log_interval == "auto" else log_interval
        fitted("log_interval", log_interval, int | None)
        require(log_interval != 0, "log_interval", log_interval, "give at least 1, or None for no tables.")
        name = type(model).__name__ if tb_log_name is None else tb_log_name
        self.model, self.log_interval = model, log_interval
        _, self.callback = model._setup_learn(total_timesteps, callback, reset_num_timesteps, name, progress_bar)

    @contextmanager
    def under_way(self) -> Iterator[Loop]:
        """Around all iterations of the loop that this gives, until it is over or a callback asks to stop."""
        model, callback, log_interval = self.model, self.callback, self.log_interval
        with learning(model):
            names = model._callback_locals(callback=callback, log_interval=log_interval)
            callback.on_training_start(names, globals())
        with drawing(model.seed), learning(model), model._while_learning():
            try:
                yield type(model).loop(model, callback, log_interval)
            except EpisodeWithoutEnd as end:
                warn_user(str(end))
                callback.on_training_end()
            except BaseException:
                end_in_spite(callback)
                raise
            else:
                callback.on_training_end()
            finally:
                model._split.stop()
        if model.verbose >= 1:
            print("time: " + ", ".join(f"{name} {share} %" for name, share in model._split.percent().items()))


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


def tasks(model: Any, name: str) -> tuple[Callable[..., Any], ...]:
    """Functions that the parts of a model have under a name, to be called without the model."""
    return tuple(partial(function, model) for part in model.parts.values() for function in getattr(part, name))


def engine_checks(model: Any) -> tuple[Task, ...]:
    """To be called between iterations: refuses what the engine alone carries out where gradient steps go round it."""
    before = model.clock.updates
    check = partial(check_engine, model, before)
    return (check,) if model.host.must_run else ()


def check_engine(model: Any, before: int) -> None:
    """Refuse a learner whose gradient steps the engine does not make, though it must; ``before``: updates until now."""
    model.host.check(model.learner, type(model).__name__, model.clock.updates > before)


def restart_if_interrupted(model: Any) -> None:
    """Between iterations: begin new episodes where another program has reset the environments, as evaluations do."""
    runner = model.runner
    if runner is not None and runner.interrupted and not runner.is_ahead:
        model._start_episodes()


def is_own(model: Any, name: str) -> bool:
    """Whether a model has a method of a program's own in the place of the library's."""
    return name in vars(model) or has_own(type(model), name)


def has_own(cls: type, name: str) -> bool:
    """Whether a class has a method of a program's own in the place of the library's."""
    return not str(getattr(cls, name).__module__).startswith("polyak.")


def end_in_spite(callback: BaseCallback) -> None:
    """Let callbacks end after an error, which what they raise must not hide."""
    try:
        callback.on_training_end()
    except Exception as error:
        warn_user(f"a callback raised {error!r} in on_training_end(), after training had failed.")
