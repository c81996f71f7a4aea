"""Ranking of policies by recorded data, on a bandit whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import PPO
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.experience import Dataset
from polyak.zoo.ranking import rank_checkpoints
from tests.pairs import one_of_each

SEEN, CHOICES = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)
LINEAR = {"policy_kwargs": {"net_arch": []}, "learning_rate": 0.05, "batch_size": 64, "device": "cpu"}


def lever(preference: float) -> PPO:
    """Pulls the second of two levers with log-odds ``preference``, whatever it sees."""
    model = PPO("MlpPolicy", None, policy_kwargs={"net_arch": []}, device="cpu", _init_setup_model=False)
    model.observation_space, model.action_space = SEEN, CHOICES
    model._setup_model()
    with torch.no_grad():
        model.policy.action_net.weight.zero_()
        model.policy.action_net.bias.copy_(torch.tensor([0.0, preference]))
    return model


@pytest.fixture(scope="module")
def data() -> Dataset:
    """400 episodes of one step: the second lever pays 1, the first nothing."""
    torch.manual_seed(0)
    seen = np.random.default_rng(0).uniform(-1, 1, (400, 1)).astype(np.float32)
    behaviour = lever(0.0)
    actions = np.asarray(behaviour.predict(seen, deterministic=False)[0])
    columns = {"log_probs": log_prob_of(behaviour, seen, actions)}
    over = np.ones(400, bool)
    return Dataset(
        seen, actions, actions.astype(float), over, next_observations=seen, columns=columns,
        observation_space=SEEN, action_space=CHOICES,
    )  # fmt: skip


LEVERS = {"seldom": -1.0, "often": 1.0, "always": 4.0, "half": 0.0}


@pytest.mark.parametrize(
    "method", one_of_each(["fqe", "is", "wis", "pdis", "wpdis", "dr", "wdr"], "fqe", "wpdis", "dr")
)
def test_every_method_finds_the_order(method: str, data: Dataset) -> None:
    ranking = rank_checkpoints(
        {name: lever(odds) for name, odds in LEVERS.items()}, data, method, n_updates=150, fqe=LINEAR
    )
    assert ranking.names == ["always", "often", "half", "seldom"]
    for name, estimate in ranking:
        chance = 1 / (1 + np.exp(-LEVERS[name]))
        assert estimate.value == pytest.approx(chance, abs=0.15)  # of 400 tosses, their ratios at most 2
        assert estimate.low <= estimate.value <= estimate.high
    assert ranking.correlation(LEVERS) == pytest.approx(1.0)
    assert ranking.correlation({name: -odds for name, odds in LEVERS.items()}) == pytest.approx(-1.0)
    assert str(ranking).splitlines()[1].startswith("always")
    assert len(str(ranking).splitlines()) == 1 + len(ranking)


def test_files_models_and_functions_are_ranked_together(data: Dataset, tmp_path: Path) -> None:
    lever(1.0).save(tmp_path / "often.zip")
    lever(-1.0).save(tmp_path / "seldom.zip")
    files = [str(tmp_path / "seldom.zip"), tmp_path / "often.zip"]
    ranking = rank_checkpoints([*files, lambda obs: 1, lever(0.0)], data, n_updates=150, fqe=LINEAR)
    assert ranking.names == ["function 2", str(files[1]), "PPO 3", str(files[0])]
    assert ranking["function 2"].value > ranking["PPO 3"].value


def test_equal_seeds_rank_equally(data: Dataset) -> None:
    def values(seed: int) -> list[Any]:
        return list(rank_checkpoints([lever(1.0), lever(0.0)], data, n_updates=20, fqe=LINEAR, seed=seed))

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_what_cannot_be_ranked_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="policies is empty"):
        rank_checkpoints([], data)
    with pytest.raises(ValueError, match="policies: 3 cannot act"):
        rank_checkpoints([3], data)
    with pytest.raises(ValueError, match="has a file twice"):
        rank_checkpoints(["a.zip", "a.zip"], data)
    with pytest.raises(ValueError, match="method='magic' is unknown: use 'fqe', 'is', "):
        rank_checkpoints([lever(0.0)], data, "magic")
    with pytest.raises(FileNotFoundError):
        rank_checkpoints([tmp_path / "nothing.zip"], data)
    with pytest.raises(ValueError, match="dataset has one episode"):
        rank_checkpoints([lever(0.0)], data.select([0]), "dr", n_updates=1)
