"""Studies on a dataset: settings are compared by folds of its episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak import BC, DiscreteCQL, collect
from polyak.algorithms.fqe import FQE
from polyak.evaluation.off_policy.importance_sampling import initial_observations
from polyak.evaluation.off_policy.metrics import METRICS
from polyak.experience import Dataset
from polyak.zoo.tuning import studies
from tests.zoo.test_cli import run

pytest.importorskip("optuna")
NETWORK = {"net_arch": [8]}
SPACE = """
def rates(trial):
    rate = [1e-5, 1e-2, 1e-4][trial.number]
    return {"learning_rate": trial.suggest_float("rate", rate, rate)}
"""


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Episodes of a rule, in the current folder; beside them a file of spaces."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.py").write_text(SPACE)
    shown = collect("CartPole-v1", lambda obs: int(obs[2] > 0), 600, whole_episodes=True, seed=0)
    shown.save("shown.npz")
    return shown


def tune(*more: object, algo: str = "bc") -> list[object]:
    options = ["policy_kwargs:dict(net_arch=[8])", "batch_size:32", "normalize:False"]
    return [
        *("tune", "--algo", algo, "--dataset", "shown.npz", "--space", "space.py:rates", "-params", *options),
        *("-n", 40, "--n-trials", 3, "--n-evaluations", 2, "--n-startup-trials", 1, "--seed", 3, "--device", "cpu"),
        *("--no-optim-plots", "--folds", 3, "--sampler", "random", "--pruner", "none", *more),
    ]


def trials(algo: str) -> list[Any]:
    storage = studies.open_storage(f"logs/{algo}/study_{algo}_CartPole-v1.journal")
    return studies.finished(studies.load_study(storage, f"{algo}_CartPole-v1"))


def test_the_score_of_cloning_is_the_likelihood_of_episodes_that_are_held_out(
    data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*tune("--optimization-log-path", "opt")) == 0
    printed = capsys.readouterr().out
    assert "3 folds by negative_log_likelihood" in printed
    best = max(trials("bc"), key=lambda trial: trial.value)
    assert best.params["rate"] == 1e-2
    scores = []
    for learned, held_out in data.folds(3, seed=3):
        model = BC("MlpPolicy", learned, 1e-2, batch_size=32, policy_kwargs=NETWORK, seed=3, device="cpu").learn(40)
        scores.append(-METRICS["negative_log_likelihood"](model, held_out))
    assert best.user_attrs["returns_of_seeds"] == pytest.approx(scores, rel=1e-4)
    assert best.value == pytest.approx(np.mean(scores), rel=1e-4)
    kept = np.load(f"opt/trial_{best.number}/fold_1/evaluations.npz")
    assert kept["timesteps"].tolist() == [20, 40]
    assert kept["results"][-1, 0] == pytest.approx(scores[1], rel=1e-4)

    (command,) = (line for line in printed.splitlines() if line.startswith("Train with it: "))
    assert "--dataset shown.npz" in command
    assert run(*command.removeprefix("Train with it: polyak ").split(), "--eval-freq", -1, "--verbose", 0) == 0
    assert run("tune", "--algo", "bc", "--dataset", "shown.npz", "--trial-id", best.number) == 0


def test_other_algorithms_are_scored_by_a_fitted_q_evaluation_of_the_held_out_episodes(data: Dataset) -> None:
    assert run(*tune("--n-trials", 1, "--n-evaluations", 1, algo="discrete_cql")) == 0
    (trial,) = trials("discrete_cql")
    learned, held_out = next(data.folds(3, seed=3))
    options: dict[str, Any] = {"batch_size": 32, "policy_kwargs": NETWORK, "seed": 3, "device": "cpu"}
    model = DiscreteCQL("MlpPolicy", learned, learning_rate=trial.params["rate"], **options).learn(40)
    critics = FQE("MlpPolicy", held_out, target=model, gamma=0.99, deterministic=True, seed=0, device="cpu").learn(40)
    expected = critics.values(initial_observations(held_out)).mean()
    assert trial.user_attrs["returns_of_seeds"][0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--metric", "td_error"], "--metric td_error: BC has no critics of actions"),
        (["--metric", "regret"], "--metric must be one of fqe"),
        (["--folds", 1], "--folds must be at least 2"),
        (["--folds", 1000], "count=1000 must be at least 2 and at most the number of episodes"),
        (["--seeds", 2], "--seeds means nothing here: agents do not act"),
        (["--dataset", "", "--algo", "ppo"], "--folds means nothing here: there is no --dataset"),
        (["--algo", "ppo"], "ppo learns by acting only"),
    ],
)
def test_what_cannot_be_scored_is_said_before_the_study(
    more: list[object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*tune(*more)) == 2
    assert message in capsys.readouterr().err
    assert not Path("logs").exists()
