"""A progress bar of training."""

import warnings
from typing import Any

from polyak.callbacks.callback import BaseCallback


class ProgressBarCallback(BaseCallback):
    """Show the progress of training as a bar.

    Raises:
        ImportError: tqdm or rich is not installed.
    """

    _reads_locals = False
    pbar: Any

    def __init__(self) -> None:
        super().__init__()
        try:
            from tqdm import TqdmExperimentalWarning
            from tqdm.rich import tqdm
        except ImportError as error:
            raise ImportError("the progress bar needs tqdm and rich: pip install 'polyak[extra]'") from error
        self._make_bar = tqdm
        self._experimental = TqdmExperimentalWarning
        self._n_shown = 0

    def _on_training_start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._experimental)
            self.pbar = self._make_bar(total=self.model._total_timesteps - self.num_timesteps)
        self._n_shown = self.num_timesteps

    def _on_step(self) -> bool:
        # The last rollout is finished, beyond the requested steps.
        reached = min(self.num_timesteps, self.model._total_timesteps)
        self.pbar.update(reached - self._n_shown)
        self._n_shown = reached
        return True

    def _on_training_end(self) -> None:
        self.pbar.refresh()
        self.pbar.close()
