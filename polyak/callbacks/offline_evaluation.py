"""Metrics of recorded episodes, logged during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.periodic import Period, Unit
from polyak.evaluation.off_policy.log_probs import NotApplicableError
from polyak.evaluation.off_policy.metrics import METRICS, Metric
from polyak.evaluation.undisturbed import undisturbed
from polyak.experience import Dataset
from polyak.suggestions import did_you_mean


class OfflineEvalCallback(BaseCallback):
    """Evaluate the model on a dataset every ``eval_freq`` calls, without an environment: ``eval/<metric>`` is logged.

    Args:
        dataset: with the model's spaces; preferably of episodes that it is not trained on: see
            :meth:`~polyak.experience.Dataset.select`.
        metrics: names of :data:`~polyak.evaluation.off_policy.metrics.METRICS`, or name -> function of (model,
            dataset); ``None``: all of the former that apply to the model.
        eval_freq: calls (or, see ``unit``, steps) between two evaluations. In offline training a call is a gradient
            step.
        verbose: 1 prints the results.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.

    Attributes:
        timesteps: of the evaluations.
        results: metric -> its values.

    Raises:
        ValueError: an unknown metric or unit, or ``eval_freq`` is less than 1; when training begins, the model has
            other spaces, or a metric requested by name does not apply to it.
    """

    _reads_locals = False

    def __init__(
        self,
        dataset: Dataset,
        metrics: Sequence[str] | Mapping[str, Metric] | None = None,
        eval_freq: int = 10_000,
        verbose: int = 0,
        *,
        unit: Unit = "calls",
    ) -> None:
        super().__init__(verbose)
        if eval_freq < 1:
            raise ValueError(
                f"eval_freq must be at least 1, got {eval_freq!r}. Leave the callback out to never evaluate."
            )
        for name in metrics or () if not isinstance(metrics, Mapping) else ():
            if name not in METRICS:
                raise ValueError(
                    f"metrics: {name!r} is unknown; there are {', '.join(METRICS)}.{did_you_mean(name, METRICS)}"
                )
        self.dataset, self.eval_freq = dataset, eval_freq
        self.metrics: dict[str, Metric] | None = None
        if metrics is not None:
            self.metrics = dict(metrics if isinstance(metrics, Mapping) else {name: METRICS[name] for name in metrics})
        self.timesteps: list[int] = []
        self.results: dict[str, list[float]] = {}
        self._interval = Period(unit)

    def _init_callback(self) -> None:
        for what in ("observation_space", "action_space"):
            ours, theirs = getattr(self.dataset, what), getattr(self.model, what)
            if ours != theirs:
                raise ValueError(f"dataset has {what}={ours}, but the model {theirs}. Use dataset.for_env(env).")
        some = self.dataset.select([0])
        for name, metric in dict(METRICS if self.metrics is None else self.metrics).items():
            try:
                with undisturbed(self.model):
                    metric(self.model, some)
            except NotApplicableError as error:
                if self.metrics is not None:
                    raise ValueError(f"metrics: {name!r} cannot be computed. {error}") from None
            else:
                self.results.setdefault(name, [])

    def _on_training_start(self) -> None:
        self._interval.restart(self, self.eval_freq)

    def _on_step(self) -> bool:
        if self._interval.due(self.eval_freq, self):
            self.evaluate()
        return True

    def evaluate(self) -> dict[str, float]:
        """Computes, logs and stores every metric."""
        metrics = {**METRICS, **(self.metrics or {})}
        with undisturbed(self.model):
            found = {name: metrics[name](self.model, self.dataset) for name in self.results}
        self.timesteps.append(self.num_timesteps)
        for name, value in found.items():
            self.results[name].append(value)
            self.logger.record(f"eval/{name}", value)
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
        if self.verbose >= 1:
            print(f"{self.num_timesteps} steps: " + ", ".join(f"{name} {np.round(v, 4)}" for name, v in found.items()))
        return found
