"""What ``learn`` does, in pieces: for programs that ask for one iteration after another and never say how many."""

from collections.abc import Iterator
from contextlib import contextmanager

from polyak.algorithm import Algorithm
from polyak.callbacks.callback import MaybeCallback


class Lessons:
    """The iterations of a model's training, one by one.

    As many steps as were made are expected to follow, so that gradient steps are compiled once a run has become long.

    Args:
        model: what learns.
        horizon: environment steps that schedules take for the whole of training; training may last longer.
        callback: as for :meth:`~polyak.algorithm.Algorithm.learn`.
        restart: begin to count at zero; ``False`` continues from where a loaded model was.
    """

    def __init__(self, model: Algorithm, horizon: int, callback: MaybeCallback = None, restart: bool = True) -> None:
        self.model, self.horizon = model, horizon
        _, self.callback = model._setup_learn(1, callback, restart, type(model).__name__)
        model._total_timesteps, model._num_timesteps_at_start = horizon, 0
        self.callback.on_training_start(model._callback_locals(callback=self.callback), globals())
        self._began = model.num_timesteps

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around some iterations, which :meth:`iterate` makes."""
        model = self.model
        model._total_timesteps = model.num_timesteps + max(model.num_timesteps - self._began, 1)
        model._prepare_to_learn(False)
        model._total_timesteps = self.horizon
        self._loop = type(model).loop(model, self.callback, None)
        with model._while_learning():
            yield

    def iterate(self) -> bool:
        """One iteration: collect some experience, learn from it. False: a callback asked to stop."""
        return self._loop.iterate()

    def end(self) -> None:
        """There are no more."""
        self.callback.on_training_end()
        self.model._split.stop()
