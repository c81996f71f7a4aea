"""Small networks train fastest on one thread, and tests run side by side; and a run that several of them read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from polyak.learning.engine.threads import chosen_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Give PyTorch one thread in every test of the command line."""
    with chosen_threads(1):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log folder with one short run of PPO, normalised, with evaluations and checkpoints: to be read only."""
    from polyak.zoo.train import TrainOptions, train

    folder = tmp_path_factory.mktemp("trained") / "logs"
    settings = ["n_steps:16", "n_envs:2", "batch_size:32", "n_epochs:1", "normalize:True"]
    how = {"eval_freq": 128, "eval_episodes": 1, "save_freq": 128, "verbose": 0}
    with chosen_threads(1):
        train(TrainOptions(log_folder=str(folder), n_timesteps=256, hyperparams=settings, seed=3, **how))
    return folder
