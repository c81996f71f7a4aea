"""Files of models that are made to do harm are refused by name, in little time and memory; honest large ones are read.

The files are written and read in one child process: see :mod:`tests.checkpoint.hostile_models`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from polyak import PPO
from polyak.checkpoint.building import ALWAYS_ALLOWED, GROWTH, no_larger_than
from polyak.compat.rllib_face import PPOConfig
from polyak.envs import SubprocVecEnv, VecFrameStack, make_vec_env
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.noise import NormalActionNoise, VectorizedActionNoise
from tests.checkpoint import hostile_models
from tests.warm import python

ROOT = Path(__file__).parents[2]
HARMLESS = 100
"""At most so many of the files ask for nothing that loading has to refuse, such as n_epochs=1e12."""


def outcomes(folder: Path, share: str) -> list[dict[str, str]]:
    done = python(["-m", "tests.checkpoint.hostile_models", folder, share], ROOT, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def check(found: list[dict[str, str]]) -> None:
    wrong = [f"{one['name']}: {one['kind']} ({one['message'][:200]})" for one in found]
    wrong = [text for text, one in zip(wrong, found, strict=True) if one["kind"] not in ("refused", "accepted")]
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(sys.platform != "linux", reason="the child measures its memory in /proc")
def test_hostile_files(tmp_path: Path) -> None:
    """A part of the table: all kinds of files through all readers, but not all pairs of them."""
    found = outcomes(tmp_path, "part")
    check(found)
    assert sum(one["kind"] == "refused" for one in found) >= 150
    assert sum(one["kind"] == "accepted" for one in found) <= HARMLESS


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the child measures its memory in /proc")
def test_all_hostile_files(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "all")
    check(found)
    assert len(found) == len(list(hostile_models.cases())) >= 700
    assert sum(one["kind"] == "accepted" for one in found) <= HARMLESS


# -- networks in proportion to the file --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(10**5, 10**5),
        lambda: nn.LSTM(8, 8, num_layers=10**6),
        lambda: nn.Embedding(10**6, 10**6),
        lambda: nn.Conv2d(3, 10**6, 9),
        lambda: [nn.Linear(1, 1) for _ in range(10**6)],
        lambda: torch.eye(10**7),
        lambda: torch.full((10**10,), 1.0),
        lambda: torch.zeros(3).new_zeros(10**11),
        lambda: torch.ones(5).repeat(10**11),
        lambda: torch.arange(10**11),
        lambda: torch.randn(10**6, 10**6),
        lambda: torch.zeros(size=(10**11,)),
    ],
)
def test_nothing_is_allocated_that_the_file_does_not_hold(build) -> None:
    with pytest.raises(ValueError, match="larger networks than it holds"), no_larger_than([np.zeros(10)], {}):
        build()


def test_honest_networks_are_built() -> None:
    width = int(ALWAYS_ALLOWED**0.5) + 1
    held = [np.zeros((width, width), np.float32), np.zeros(width, np.float32)]
    with no_larger_than(held, {"net_arch": [width, width]}):
        assert nn.Linear(width, width).weight.numel() == held[0].size > ALWAYS_ALLOWED
        for _ in range(GROWTH - 2):  # first values, target networks
            torch.empty(width, width)
    with no_larger_than([], {}, trust=True):
        nn.Linear(width, width)
    with pytest.raises(ValueError, match="larger networks"), no_larger_than([], {}):
        nn.Linear(width, width)


def test_options_of_endless_lists_are_not_looked_at() -> None:
    with pytest.raises(ValueError, match="more than 10,000 values"), no_larger_than([], {"net_arch": [1] * 20_000}):
        pass


def test_a_wide_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [500, 500]}, device="cpu")
    model.save(tmp_path / "m")
    loaded = PPO.load(tmp_path / "m", device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(model.policy.parameters(), loaded.policy.parameters(), strict=True))


# -- sizes in the API --------------------------------------------------------------------------------------------------


def test_sizes_are_refused_before_anything_is_made() -> None:
    def never() -> None:
        raise AssertionError("an environment was made")

    with pytest.raises(ValueError, match="n_envs must be at most 100,000, got 1,000,000"):
        make_vec_env("CartPole-v1", n_envs=10**6)
    with pytest.raises(ValueError, match="n_workers must be at most 1,024, got 2,000"):
        SubprocVecEnv([never] * 2000, n_workers=10**6)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="n_stack must be at most 1,000, got 1,000,000"):
        VecFrameStack(make_vec_env("CartPole-v1"), 10**6)
    with pytest.raises(ValueError, match="n_envs must be at most 100,000, got 1,000,000"):
        VectorizedActionNoise(NormalActionNoise(np.zeros(1), np.ones(1)), 10**6)


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_env_runners": 10**6},
        {"num_envs_per_env_runner": 10**6},
        {"evaluation_num_env_runners": 10**6},
        {"num_learners": 10**6},
    ],
)
def test_sizes_of_configs(sizes: dict[str, int]) -> None:
    config = PPOConfig().environment("CartPole-v1")
    methods = {"num_learners": config.learners, "evaluation_num_env_runners": config.evaluation}
    with pytest.raises(HyperparameterError, match=f"{next(iter(sizes))}=1000000.*an integer in"):
        methods.get(next(iter(sizes)), config.env_runners)(**sizes)
