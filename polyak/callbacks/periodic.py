"""Periodic callbacks, by calls or environment steps."""

from typing import Literal

from polyak.callbacks.callback import BaseCallback, CallbackFunction, EventCallback
from polyak.hyperparameters.declaration import whole
from polyak.warning import advise

Unit = Literal["calls", "timesteps"]


class Period:
    """Counts calls or environment steps between periodic events."""

    def __init__(self, unit: Unit) -> None:
        if unit not in ("calls", "timesteps"):
            raise ValueError(f"unit must be 'calls' or 'timesteps', got {unit!r}.")
        self.unit = unit
        self.last = 0

    def restart(self, callback: BaseCallback, freq: int) -> None:
        """Start counting; warn if ``freq`` calls exceed the training."""
        self.last = callback.num_timesteps
        total, n_envs = getattr(callback.model, "_total_timesteps", 0), getattr(callback.model, "n_envs", 1)
        if self.unit == "calls" and n_envs > 1 and freq <= total < freq * n_envs:
            advise(
                f"{type(callback).__name__} counts calls",
                f"{type(callback).__name__} counts calls, and each is {n_envs} environment steps (n_envs={n_envs}): "
                f"{freq} calls are {freq * n_envs} steps, more than the {total} of this training, so that it never "
                f"acts. Divide by n_envs, or pass unit='timesteps'.",
            )

    def due(self, freq: int, callback: BaseCallback) -> bool:
        if freq <= 0:
            return False
        if self.unit == "calls":
            return callback.n_calls % freq == 0
        before, self.last = self.last, callback.num_timesteps
        return self.last // freq > before // freq


class EveryNTimesteps(EventCallback):
    """Step another callback every ``n_steps`` environment steps, counted over all environments.

    Args:
        n_steps: environment steps between two events.
        callback: the callback to step.

    Raises:
        ValueError: ``n_steps`` is less than 1.
    """

    _reads_locals = False

    def __init__(self, n_steps: int, callback: BaseCallback | CallbackFunction | None) -> None:
        super().__init__(callback)
        self.n_steps = whole("n_steps", n_steps)
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps!r}.")
        self.last_time_trigger = 0

    def _on_training_start(self) -> None:
        # A second learn() may start counting at zero again.
        self.last_time_trigger = min(self.last_time_trigger, self.num_timesteps)
        super()._on_training_start()

    def _on_step(self) -> bool:
        if self.num_timesteps - self.last_time_trigger < self.n_steps:
            return True
        self.last_time_trigger = self.num_timesteps
        return self._on_event()


class LogEveryNTimesteps(EveryNTimesteps):
    """Write the log table every ``n_steps`` environment steps; pass ``log_interval=None`` to ``learn`` with it.

    Args:
        n_steps: environment steps between two tables.
    """

    _reads_locals = False

    def __init__(self, n_steps: int) -> None:
        super().__init__(n_steps, None)

    def _on_event(self) -> bool:
        self.model.dump_logs()
        return True
