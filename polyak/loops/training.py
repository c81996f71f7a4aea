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
    """The order of collection, learning and logging in one call of ``learn``."""

    def iterate(self) -> bool:
        """Collect experience and learn from it. Returns False if a callback stops training."""


class Training:
    """Sets up a model for ``learn``, and ends training cleanly whatever happens.

    Args:
        model: the model to train.
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
        """Context of all iterations of the loop that it yields, until the last one, or until a callback stops training."""
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
    """Returns the callback, together with one that evaluates in ``eval_env``.

    Args:
        callback: the user's callback.
        eval_env: where to evaluate; ``None``: no evaluation.
        eval_freq: steps between two evaluations; ``None``: ten in all.
        n_eval_episodes: episodes of each evaluation.
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
    """Returns the functions that the parts of a model have under a name, bound to the model."""
    return tuple(partial(function, model) for part in model.parts.values() for function in getattr(part, name))


def engine_checks(model: Any) -> tuple[Task, ...]:
    """Returns checks to run between iterations: they refuse options that only the engine supports if gradient steps
    bypass it."""
    before = model.clock.updates
    check = partial(check_engine, model, before)
    return (check,) if model.host.must_run else ()


def check_engine(model: Any, before: int) -> None:
    """Refuse a learner whose gradient steps bypass the required engine; ``before``: updates at the start of training."""
    model.host.check(model.learner, type(model).__name__, model.clock.updates > before)


def restart_if_interrupted(model: Any) -> None:
    """Begin new episodes, between iterations, if another program such as an evaluation has reset the environments."""
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
    """End callbacks after an error; exceptions that they raise become warnings, so that they do not hide it."""
    try:
        callback.on_training_end()
    except Exception as error:
        warn_user(f"a callback raised {error!r} in on_training_end(), after training had failed.")
