"""The policy suits the observations where the settings leave it open: a new user's Dict or image environment trains."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.zoo.errors import ZooError
from polyak.zoo.models import fit_policy
from polyak.zoo.registry import find_algorithm
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.settings import load_settings
from polyak.zoo.train import TrainOptions, train
from tests.worlds import Drawn

FLAT = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 40, 3), np.uint8)
SMALL_IMAGE = spaces.Box(0, 255, (3, 35, 40), np.uint8)
PARTS = spaces.Dict(a=FLAT, b=spaces.Discrete(3))


class Seen(Drawn):
    """Episodes of five steps with observations of any space."""

    length, pays = 5, 1.0


@pytest.fixture(autouse=True)
def registered() -> Any:
    named = {"Parts-v0": PARTS, "Images-v0": IMAGE, "Tuples-v0": spaces.Tuple((FLAT, FLAT))}
    for name, space in named.items():
        gym.register(name, Seen, kwargs={"observation_space": space})
    yield
    for name in named:
        del gym.registry[name]


def chosen(algo: str, space: spaces.Space, env: str = "New-v0", conf_file: str | None = None, **typed: Any) -> Any:
    algorithm = find_algorithm(algo)
    settings = load_settings(algorithm, algo, env, conf_file, typed)
    said = fit_policy(algorithm, settings, space)
    if said:
        assert said.startswith(f"{settings.policy} instead of ")
        assert settings.raw["policy"] == settings.policy
    return settings.policy


@pytest.mark.parametrize(
    ("algo", "space", "policy"),
    [
        ("ppo", FLAT, "MlpPolicy"),
        ("ppo", PARTS, "MultiInputPolicy"),
        ("dqn", IMAGE, "CnnPolicy"),
        ("sac", SMALL_IMAGE, "MlpPolicy"),
        ("recurrent_ppo", PARTS, "MultiInputLstmPolicy"),
        ("recurrent_ppo", IMAGE, "CnnLstmPolicy"),
        ("ars", FLAT, "LinearPolicy"),
    ],
)
def test_the_default_block_leaves_it_open(algo: str, space: spaces.Space, policy: str) -> None:
    assert chosen(algo, space) == policy


def test_what_was_chosen_stays(tmp_path: Path) -> None:
    assert chosen("ppo", IMAGE, policy="MlpPolicy") == "MlpPolicy"
    assert chosen("ppo", IMAGE, normalize=True) == "MlpPolicy", "normalised images are no longer images"
    assert chosen("ppo", IMAGE, env="CartPole-v1") == "MlpPolicy", "tuned for this environment"
    assert chosen("ppo", PARTS, policy_kwargs={"features_extractor_class": object}) == "MlpPolicy"
    own = tmp_path / "own.yml"
    own.write_text("default:\n  n_steps: 16\n  policy: MlpPolicy\nOpen-v0:\n  n_steps: 8\n")
    assert chosen("ppo", IMAGE, conf_file=str(own)) == "MlpPolicy"
    assert chosen("ppo", IMAGE, env="Open-v0", conf_file=str(own)) == "CnnPolicy"


def test_a_table_has_no_policy() -> None:
    settings = load_settings(find_algorithm("q_learning"), "q_learning", "New-v0")
    assert fit_policy(find_algorithm("q_learning"), settings, PARTS) == ""
    assert "policy" not in settings.raw


@pytest.mark.parametrize(
    ("env", "policy"), [("Parts-v0", "MultiInputPolicy"), ("Images-v0", "CnnPolicy"), ("Tuples-v0", "MultiInputPolicy")]
)
def test_a_new_environment_trains_at_once(
    env: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["n_steps=8", "batch_size=8", "n_epochs=1"]
    options = TrainOptions(
        env=env, n_timesteps=8, eval_freq=-1, seed=0, n_envs=1, hyperparams=small, log_folder=str(tmp_path)
    )
    model = train(options)
    assert model.num_timesteps == 8
    assert f"{policy} instead of MlpPolicy" in capsys.readouterr().out
    run = RunFolder.find(tmp_path, "ppo", env)
    assert run.read_yaml("config.yml")["policy"] == policy
    options.hyperparams = [*small, "policy:MlpPolicy"]
    if env != "Images-v0":
        with pytest.raises(ZooError, match="MultiInputPolicy"):
            train(options)


def test_tuning_chooses_too(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from polyak.zoo.tuning.options import TuneOptions
    from polyak.zoo.tuning.problem import Problem

    problem = Problem.build(TuneOptions(env="Parts-v0", n_timesteps=100, log_folder=str(tmp_path)))
    assert problem.base.policy == problem.read(problem.base.raw, "trial").policy == "MultiInputPolicy"
    assert Problem.build(TuneOptions(env="Images-v0", n_timesteps=100, log_folder=str(tmp_path))).task.images
