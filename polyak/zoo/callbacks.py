"""Callbacks that setting files may name."""

from __future__ import annotations

from polyak.callbacks.callback import BaseCallback
from polyak.logging.logger import CSVOutputFormat, HumanOutputFormat, JSONOutputFormat, KVWriter


class RawStatisticsCallback(BaseCallback):
    """Logs every training episode by itself, where ``rollout/ep_rew_mean`` is a mean of the last hundred.

    Writes ``raw/rollouts/episodic_return`` and ``raw/rollouts/episodic_length`` to TensorBoard, W&B and MLflow, over
    the number of steps in finished episodes; tables, CSV and JSON files are spared. As RL Baselines3 Zoo's.
    """

    _steps = 0

    def _on_step(self) -> bool:
        for episode in (info["episode"] for info in self.locals["infos"] if "episode" in info):
            self._steps += int(episode["l"])
            self._write(float(episode["r"]), float(episode["l"]))
        return True

    def _write(self, episode_return: float, length: float) -> None:
        values = {"raw/rollouts/episodic_return": episode_return, "raw/rollouts/episodic_length": length}
        for sink in self.logger.output_formats:  # past the logger, which keeps the last value of each name only
            if isinstance(sink, KVWriter) and not isinstance(
                sink, HumanOutputFormat | CSVOutputFormat | JSONOutputFormat
            ):
                sink.write(values, {}, self._steps)
