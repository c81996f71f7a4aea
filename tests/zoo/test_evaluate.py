"""``polyak evaluate``: whole episodes of a trained agent, in words and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import PPO
from polyak.envs import make_vec_env
from polyak.evaluation.in_environments import evaluate as play
from polyak.zoo.evaluate import EvaluateOptions, evaluate
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.train import TrainOptions, train
from tests.zoo.test_cli import run


class Loud(gym.Wrapper):
    """Prints, and says of episodes of odd length that they were a success."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        print("reset")
        self.steps = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        return observation, reward, terminated, truncated, {**info, "is_success": self.steps % 2 == 1}


def loud() -> gym.Env:
    return Loud(gym.make("CartPole-v1").unwrapped)


@pytest.fixture(scope="module")
def loud_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of a moment in an environment that prints."""
    folder = tmp_path_factory.mktemp("logs")
    gym.register("Loud-v0", loud, max_episode_steps=30)
    small = ["n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2"]
    how = {"eval_freq": -1, "verbose": 0, "seed": 0, "hyperparams": small}
    train(TrainOptions(env="Loud-v0", n_timesteps=256, log_folder=str(folder), **how))
    yield folder
    del gym.registry["Loud-v0"]


def test_the_numbers_are_those_of_the_library(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "--algo", "ppo", "--env", "CartPole-v1", "-f", trained, "-n", 7, "--seed", 3, "--n-envs", 2]
    assert run(*words) == 0
    printed = capsys.readouterr().out
    assert run(*words, "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    envs = make_vec_env("CartPole-v1", n_envs=2, seed=3)
    model = PPO.load(RunFolder.find(trained, "ppo", "CartPole-v1").final_model, env=envs)
    normalizer = model.get_vec_normalize_env()
    normalizer.training = normalizer.norm_reward = False
    expected = play(model, model.get_env(), 7, seed=3)
    assert found["returns"] == expected.returns.tolist()
    assert found["lengths"] == expected.lengths.tolist()
    assert found["mean_return"] == pytest.approx(np.mean(found["returns"]))
    assert found["std_return"] == pytest.approx(np.std(found["returns"]))
    assert (found["n_episodes"], found["training_steps"], found["success_rate"]) == (7, 256, None)
    assert (found["algo"], found["env"], found["deterministic"]) == ("ppo", "CartPole-v1", True)
    low, high = found["interval"]
    interval = f"(95% interval of the mean: {low:.2f} to {high:.2f})"
    assert f"Mean return: {found['mean_return']:.2f} +/- {found['std_return']:.2f} {interval}" in printed
    assert f"Mean length: {found['mean_length']:.2f}" in printed
    assert "Episodes: 7\n" in printed
    assert "Success rate" not in printed


def test_json_is_alone_on_stdout_and_success_is_counted(loud_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "--env", "Loud-v0", "-f", loud_logs, "-n", 5, "--stochastic"]
    assert run(*words, "-o", "json") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "reset" in said.err
    assert found["successes"] == [length % 2 == 1 for length in found["lengths"]]
    assert found["success_rate"] == np.mean(found["successes"])
    assert found["deterministic"] is False
    assert run(*words) == 0
    low, high = found["success_interval"]
    said = f"Success rate: {found['success_rate']:.1%} (95% interval: {low:.1%} to {high:.1%})"
    assert said in capsys.readouterr().out


def test_a_single_episode_has_no_interval(loud_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "--env", "Loud-v0", "-f", loud_logs, "-n", 1]
    assert run(*words) == 0
    printed = capsys.readouterr().out
    assert "(95% interval of the mean: unknown, of a single episode)" in printed
    assert "(95% interval: unknown)" in printed
    assert run(*words, "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["interval"], found["success_interval"]) == (None, None)


def test_options_change_what_is_measured(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = EvaluateOptions(folder=str(trained), n_episodes=6, seed=1)
    first, again = evaluate(options), evaluate(options)
    assert first.returns.tolist() == again.returns.tolist()
    sampled = evaluate(replace(options, stochastic=True))
    assert sampled.returns.tolist() != first.returns.tolist()
    assert evaluate(replace(options, load_checkpoint=128)).returns.shape == (6,)
    with pytest.warns(UserWarning, match="reached max_steps_per_episode=3"):
        cut = evaluate(replace(options, max_episode_steps=3))
    assert cut.lengths.tolist() == [3] * 6
    assert "6 of them cut" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", 0], "--n-episodes must be at least 1, got 0"),
        (["--max-episode-steps", 0], "--max-episode-steps must be at least 1 (or left out), got 0"),
        (["--confidence", 1], "--confidence must lie between 0 and 1, got 1.0"),
        (["--output", "xml"], "--output must be one of text, json, got 'xml'"),
        (["--deterministic", "--stochastic"], "exclude each other"),
        (["--algo", "sac"], "No run at all of sac on CartPole-v1"),
    ],
)
def test_mistakes(words: list[object], message: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", "-f", trained, *words) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
