"""Files of a model while it learns."""

import os
from collections.abc import Callable
from typing import Any, Literal

from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.periodic import Period, Unit
from polyak.hyperparameters.declaration import whole
from polyak.writing import make_folder

FileFormat = Literal["polyak", "sb3"]


def file_saver(file_format: str) -> str:
    """The method of models and of ``VecNormalize`` that writes a format."""
    methods = {"polyak": "save", "sb3": "save_sb3"}
    if file_format not in methods:
        raise ValueError(f"file_format must be 'polyak' or 'sb3', got {file_format!r}.")
    return methods[file_format]


class CheckpointCallback(BaseCallback):
    """Save the model every ``save_freq`` calls, that is ``save_freq * n_envs`` environment steps.

    Files are ``<prefix>_<steps>_steps.zip``, ``<prefix>_replay_buffer_<steps>_steps.pkl`` and
    ``<prefix>_vecnormalize_<steps>_steps.pkl``.

    Args:
        save_freq: calls (or, see ``unit``, environment steps) between two checkpoints.
        save_path: folder; made if missing.
        name_prefix: how the names of the files begin.
        save_replay_buffer: save the replay buffer too, if the model has one.
        save_vecnormalize: save the normalisation statistics too, if the environment has them.
        verbose: 2 prints every file.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.
        file_format: ``"sb3"`` writes models and statistics for Stable-Baselines3.

    Raises:
        ValueError: ``save_freq`` is less than 1, or an unknown ``unit`` or ``file_format``.
    """

    _reads_locals = False

    def __init__(
        self,
        save_freq: int,
        save_path: str | os.PathLike[str],
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
        *,
        unit: Unit = "calls",
        file_format: FileFormat = "polyak",
    ) -> None:
        super().__init__(verbose)
        self._saver = file_saver(file_format)
        self.save_freq = whole("save_freq", save_freq)
        if save_freq < 1:
            raise ValueError(
                f"save_freq must be at least 1, got {save_freq!r}. Leave the callback out to save nothing."
            )
        self.save_path = os.path.expanduser(save_path)
        self.name_prefix = name_prefix
        self.save_replay_buffer = save_replay_buffer
        self.save_vecnormalize = save_vecnormalize
        self._interval = Period(unit)

    def _init_callback(self) -> None:
        make_folder(self.save_path, "save_path")

    def _on_training_start(self) -> None:
        self._interval.restart(self, self.save_freq)

    def _checkpoint_path(self, checkpoint_type: str = "", extension: str = "") -> str:
        name = f"{self.name_prefix}_{checkpoint_type}{self.num_timesteps}_steps.{extension}"
        return os.path.join(self.save_path, name)

    def _on_step(self) -> bool:
        if not self._interval.due(self.save_freq, self):
            return True
        self._save("model", getattr(self.model, self._saver), self._checkpoint_path(extension="zip"))
        if self.save_replay_buffer and getattr(self.model, "replay_buffer", None) is not None:
            path = self._checkpoint_path("replay_buffer_", "pkl")
            self._save("replay buffer", self.model.save_replay_buffer, path)
        if self.save_vecnormalize and (normalize := self.model.get_vec_normalize_env()) is not None:
            save = getattr(normalize, self._saver)
            self._save("VecNormalize", save, self._checkpoint_path("vecnormalize_", "pkl"))
        return True

    def _save(self, what: str, save: Callable[[str], Any], path: str) -> None:
        save(path)
        if self.verbose >= 2:
            print(f"Saved the {what} to {path}")
