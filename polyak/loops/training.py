"""One call of ``learn``, from its arguments to its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.evaluation.undisturbed import learning
from polyak.hyperparameters.declaration import NonNegative, fitted, require
from polyak.loops.hooks import Loop
from polyak.warning import warn_user


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
        log_interval: int | None,
        tb_log_name: str | None,
        reset_num_timesteps: bool,
        progress_bar: bool,
    ) -> None:
        fitted("total_timesteps", total_timesteps, NonNegative)
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
        with learning(model), model._while_learning():
            try:
                yield model._loop(callback, log_interval)
            except BaseException:
                end_in_spite(callback)
                raise
            else:
                callback.on_training_end()
            finally:
                model._split.stop()
        if model.verbose >= 1:
            print("time: " + ", ".join(f"{name} {share} %" for name, share in model._split.percent().items()))


def end_in_spite(callback: BaseCallback) -> None:
    """Let callbacks end after an error, which what they raise must not hide."""
    try:
        callback.on_training_end()
    except Exception as error:
        warn_user(f"a callback raised {error!r} in on_training_end(), after training had failed.")
