"""Checkpoints of a model during training."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from polyak.callbacks.beside import Beside
from polyak.callbacks.callback import BaseCallback, each_of
from polyak.callbacks.periodic import Period, Unit
from polyak.checkpoint.saved import contents, write
from polyak.hyperparameters.declaration import whole
from polyak.warning import advise
from polyak.writing import make_folder

FileFormat = Literal["polyak", "sb3"]


def file_saver(file_format: str) -> str:
    """Returns the method of models and of ``VecNormalize`` that writes a format."""
    methods = {"polyak": "save", "sb3": "save_sb3"}
    if file_format not in methods:
        raise ValueError(f"file_format must be 'polyak' or 'sb3', got {file_format!r}.")
    return methods[file_format]


class CheckpointCallback(BaseCallback):
    """Save the model every ``save_freq`` calls, that is ``save_freq * n_envs`` environment steps.

    Files are ``<prefix>_<steps>_steps.zip``, ``<prefix>_replay_buffer_<steps>_steps.pkl`` and
    ``<prefix>_vecnormalize_<steps>_steps.pkl``.

    A ``full`` checkpoint holds everything that exact resumption needs: the model's file contains the replay buffer, the
    random states, the environments and the state of callbacks and logs. ``load(path, env=..., resume=True)`` and
    ``learn(..., reset_num_timesteps=False)``, with the same callbacks in the same order, then continue as if
    uninterrupted: best returns, counters and pending log values are restored. Put this callback last in the list, since
    later ones have not seen the step when the file is written.

    Args:
        save_freq: calls (or, see ``unit``, environment steps) between two checkpoints.
        save_path: folder; made if missing.
        name_prefix: prefix of the file names.
        save_replay_buffer: save the replay buffer too, if the model has one.
        save_vecnormalize: save the normalisation statistics too, if the environment has them.
        verbose: 2 prints every file.
        unit: ``"calls"`` counts steps of the vector of environments, ``"timesteps"`` those of all environments.
        file_format: ``"sb3"`` writes models and statistics for Stable-Baselines3.
        full: write full checkpoints.
        keep: number of latest checkpoints to keep in the folder; ``None``: all. An older one and its additional files
            are deleted once the new one is complete. Checkpoints of later steps than the present one belong to another
            training and are kept.

    Raises:
        ValueError: ``save_freq`` or ``keep`` is less than 1, an unknown ``unit`` or ``file_format``, or ``full`` with
            the format of Stable-Baselines3, which cannot hold everything.
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
        full: bool = False,
        keep: int | None = None,
    ) -> None:
        super().__init__(verbose)
        self._saver = file_saver(file_format)
        self.save_freq = whole("save_freq", save_freq)
        if save_freq < 1:
            raise ValueError(
                f"save_freq must be at least 1, got {save_freq!r}. Leave the callback out to save nothing."
            )
        if full and file_format != "polyak":
            raise ValueError(
                f"full=True and file_format={file_format!r}: a file of Stable-Baselines3 does not hold all that exact "
                "resumption needs. Leave one of them out."
            )
        if keep is not None and whole("keep", keep) < 1:
            raise ValueError(f"keep must be at least 1, or None to keep all, got {keep!r}.")
        self.full, self.keep = full, keep
        self._beside: Beside | None = None
        self.save_path = os.path.expanduser(save_path)
        self.name_prefix = name_prefix
        self.save_replay_buffer = save_replay_buffer
        self.save_vecnormalize = save_vecnormalize
        self._interval = Period(unit)

    def _init_callback(self) -> None:
        make_folder(self.save_path, "save_path")

    def _on_training_start(self) -> None:
        self._interval.restart(self, self.save_freq)
        if self.full:
            others = each_of(self.locals.get("callback", self))
            if self in others and others[-1] is not self:
                advise(
                    "callbacks behind a full checkpoint",
                    f"{type(others[-1]).__name__} comes after a full checkpoint, which is written before it sees the "
                    "step: a training that resumes from the file leaves out that call. Put the checkpoint last.",
                )
            self._beside = Beside(self.model, others)

    def _checkpoint_path(self, checkpoint_type: str = "", extension: str = "") -> str:
        name = f"{self.name_prefix}_{checkpoint_type}{self.num_timesteps}_steps.{extension}"
        return os.path.join(self.save_path, name)

    def _on_step(self) -> bool:
        if not self._interval.due(self.save_freq, self):
            return True
        self.save_now()
        return True

    def save_now(self) -> None:
        """Write a checkpoint of the present step, whether it is due or not."""
        saver = self._save_full if self.full else getattr(self.model, self._saver)
        self._save("model", saver, self._checkpoint_path(extension="zip"))
        if self.save_replay_buffer and getattr(self.model, "replay_buffer", None) is not None:
            path = self._checkpoint_path("replay_buffer_", "pkl")
            self._save("replay buffer", self.model.save_replay_buffer, path)
        if self.save_vecnormalize and (normalize := self.model.get_vec_normalize_env()) is not None:
            save = getattr(normalize, self._saver)
            self._save("VecNormalize", save, self._checkpoint_path("vecnormalize_", "pkl"))
        if self.keep is not None:
            self._delete_old(self.keep)

    def _save_full(self, path: str) -> None:
        assert self._beside is not None
        model: Any = self.model
        saved = contents(model, (), model.saves_also)
        saved.info["beside"] = self._beside.state(Path(self.save_path))
        if (why := saved.info.get("environments_unknown")) is not None:
            advise(
                "full checkpoints without environments",
                f"checkpoints cannot hold the state of the environments, so that training resumes with new episodes: "
                f"{why}",
            )
        write(saved, path)

    def _delete_old(self, keep: int) -> None:
        """Delete all but the newest checkpoints, models first, since the additional files are useless without them."""
        name = re.compile(re.escape(self.name_prefix) + r"_(replay_buffer_|vecnormalize_)?(\d+)_steps\.(zip|pkl)")
        found = [(match, file) for file in Path(self.save_path).iterdir() if (match := name.fullmatch(file.name))]
        steps = sorted(step for match, _ in found if not match[1] and (step := int(match[2])) <= self.num_timesteps)
        for match, file in sorted(found, key=lambda one: one[0][1] or ""):
            if int(match[2]) in steps[:-keep]:
                file.unlink(missing_ok=True)

    def _save(self, what: str, save: Callable[[str], Any], path: str) -> None:
        save(path)
        if self.verbose >= 2:
            print(f"Saved the {what} to {path}")
