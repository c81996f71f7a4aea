"""Averages of the policy's weights, for evaluation and acting."""

from __future__ import annotations

from polyak.callbacks.callback import BaseCallback, CallbackFunction
from polyak.callbacks.periodic import EveryNTimesteps
from polyak.hyperparameters.declaration import Fraction, Natural, fitted
from polyak.learning.averaging import Average
from polyak.learning.learner import Learner


class AverageWeights(EveryNTimesteps):
    """Average the policy's weights during training, and act with the average: in the child callback, and afterwards.

    The average includes the weights after each update of training: each gradient step of off-policy algorithms with the
    default ``train_freq``, each rollout of on-policy ones. While the child runs, and from the end of ``learn`` on, the
    model's policy has the average: evaluations, ``predict``, ``save`` and exports use it. Exploration and gradient
    steps use the trained weights; both are in the model's file, and the next ``learn`` continues with the latter, and
    with the average if it is given such a callback again ::

        evaluation = EvalCallback(make_vec_env("Pendulum-v1"), eval_freq=1)
        SAC("MlpPolicy", "Pendulum-v1").learn(20_000, AverageWeights(0.999, n_steps=2_000, callback=evaluation))

    Args:
        decay: in [0, 1], of an exponential moving average: the weight of the previous average in each update. ``None``:
            the mean of all weights, equally weighted.
        after: environment steps before the first weights that are averaged.
        n_steps: environment steps between two events, at which the child is stepped.
        callback: the child, such as an ``EvalCallback`` with ``eval_freq=1``, or a ``CheckpointCallback``.

    Raises:
        ValueError: an argument out of range; when training begins: the model has no networks trained by gradients.
    """

    _reads_locals = False

    def __init__(
        self,
        decay: float | None = 0.995,
        after: int = 0,
        n_steps: int = 10_000,
        callback: BaseCallback | CallbackFunction | None = None,
    ) -> None:
        super().__init__(n_steps, callback)
        self.decay, self.after = fitted("decay", decay, Fraction | None), fitted("after", after, Natural)
        self._updates = 0

    @property
    def average(self) -> Average:
        """The model's average."""
        assert self.model.learner.average is not None
        return self.model.learner.average

    def _on_training_start(self) -> None:
        learner = getattr(self.model, "learner", None)
        if not isinstance(learner, Learner) or getattr(learner, "policy", None) is not self.model.policy:
            raise ValueError(
                "AverageWeights averages the weights of a policy that gradients train, which "
                f"{type(self.model).__name__} does not have. Leave the callback out."
            )
        learner.add_average()
        self._updates = self.model._n_updates
        super()._on_training_start()

    def _on_step(self) -> bool:
        self._count()
        return super()._on_step()

    def _on_event(self) -> bool:
        if self.callback is None or not self.average.n_averaged:
            return super()._on_event()
        self.average.exchange(self.model.policy)
        try:
            return super()._on_event()
        finally:
            self.average.exchange(self.model.policy)

    def _on_training_end(self) -> None:
        self._count()
        if self.average.n_averaged:
            self.average.exchange(self.model.policy)
        super()._on_training_end()

    def _count(self) -> None:
        """Add the weights to the average if they have been updated since the last call."""
        if self.model._n_updates == self._updates or self.num_timesteps < self.after:
            return
        self._updates = self.model._n_updates
        self.average.follow(self.model.policy, self.decay)
