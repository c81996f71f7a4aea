"""Full checkpoints of a run, which ``polyak train --resume`` resumes from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyak.callbacks import beside
from polyak.callbacks.saving import CheckpointCallback
from polyak.checkpoint.saved import description
from polyak.logging.logger import get_latest_run_id
from polyak.zoo.errors import in_one_line
from polyak.zoo.interruption import Stops
from polyak.zoo.keeping import Kept
from polyak.zoo.output import note
from polyak.zoo.run_folder import EVENTS, FULL, RunFolder
from polyak.zoo.sizes import MOST_STEPS


class FullCheckpoints(CheckpointCallback):
    """Writes full checkpoints of a run, and one more when a signal asks the program to stop, which then ends.

    Args:
        folder: the folder of the run.
        save_freq: environment steps between two; none but for signals if it is below 1.
        keep: number of newest checkpoints to keep.
        stops: the handler of signals.
        save_model: called with the model before the checkpoint on a signal: the model is small and quick to save, and a
            scheduler that sends a signal may not wait for a large replay buffer.
    """

    _reads_locals = False

    def __init__(
        self,
        folder: Path,
        save_freq: int,
        keep: int,
        stops: Stops,
        save_model: Callable[[Any], Kept],
        verbose: int = 0,
    ) -> None:
        often = save_freq if save_freq > 0 else MOST_STEPS
        super().__init__(often, str(folder), FULL, verbose=verbose, unit="timesteps", full=True, keep=keep)
        self._stops, self._save_model = stops, save_model

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._stops.wait_for_step()

    def _on_step(self) -> bool:
        going = super()._on_step()
        if (interrupt := self._stops.asked) is None:
            return going
        self._stops.saving()
        saved = self._save_model(self.model)
        try:
            if not any(isinstance(error, KeyboardInterrupt) for error in saved.lost.values()):  # unless signalled again
                self.save_now()
        except Exception as error:
            note(f"the full checkpoint could not be written: {in_one_line(error)}")
        raise interrupt


def cut_logs(checkpoint: Path, folder: Path, tensorboard: str | None) -> None:
    """Cut the logs of a run to the lengths that they had when a full checkpoint was written.

    Args:
        checkpoint: the file of the checkpoint.
        folder: the folder of the run.
        tensorboard: folder of TensorBoard's runs; None without TensorBoard.

    Raises:
        ValueError: the file is damaged, or is no full checkpoint.
    """
    found = description(checkpoint).get("beside")
    if not isinstance(found, dict):
        raise ValueError(f"{checkpoint} is no full checkpoint.")
    beside.cut_tables(folder, found)
    if tensorboard is not None:
        beside.cut_events(Path(tensorboard), found)


def events_at_start(run: RunFolder, tensorboard: Path, name: str, reset: bool, again: bool) -> dict[str, Any]:
    """TensorBoard's folder of a run, with the lengths of its files before the first step.

    They are noted before anything is written there: a run that is killed before its first full checkpoint begins again
    with the same folder, and what it had written is cut off.

    Args:
        run: its folder.
        tensorboard: folder of TensorBoard's runs.
        name: of the algorithm.
        reset: whether the run counts its steps from 0, in a new folder ``<name>_<n>``; else it continues the latest.
        again: whether the run begins again.

    Raises:
        ValueError: the note is damaged.
    """
    if again and (events := run.read_yaml(EVENTS)):
        if not events.keys() >= {"folder", "files"} or not isinstance(events["files"], dict):
            raise ValueError(f"{run.settings_folder / EVENTS} must have a folder and files, got {events!r:.100}.")
        beside.cut_events(tensorboard, {"tensorboard": events})
        return events
    folder = tensorboard / f"{name}_{get_latest_run_id(str(tensorboard), name)}"
    while reset:
        folder = tensorboard / f"{name}_{get_latest_run_id(str(tensorboard), name) + 1}"
        with suppress(FileExistsError):  # another process took the number between the look and the mkdir
            folder.mkdir(parents=True)
            break
    events = beside.events_in(folder)
    run.write_yaml(EVENTS, events)
    return events
