"""Tuned settings: every packaged block fits its algorithm, and mistakes are named."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest

from polyak.envs.registration import PROVIDERS
from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import read_yaml_file
from polyak.zoo.registry import algorithm_names, find_algorithm, parameter_names
from polyak.zoo.settings import interpret, load_settings, tuned_blocks

# A player of games has no environment to be tuned for.
TUNED = [algo for algo in algorithm_names() if find_algorithm(algo).card.needs != "game"]


@pytest.mark.parametrize("algo", TUNED)
def test_every_packaged_block_fits_its_algorithm(algo: str) -> None:
    blocks = tuned_blocks(find_algorithm(algo))[0]
    assert "default" in blocks
    for key in blocks:
        settings = load_settings(find_algorithm(algo), algo, "ALE/Pong-v5" if key == "atari" else key)
        assert f"[{key}]" in settings.source
        improves_whole_policies = algo in ("policy_iteration", "soft_policy_iteration")
        assert settings.n_timesteps >= (100 if improves_whole_policies else 1000)
        assert set(settings.arguments) <= set(parameter_names(find_algorithm(algo)))
        if key not in ("default", "atari"):
            seen = key.replace("NoVel-v", "-v")  # the same task, in which speeds are not
            assert seen in gymnasium.registry or any(provider.ids.fullmatch(key) for provider in PROVIDERS)


def test_the_search_for_a_block() -> None:
    ppo = find_algorithm("ppo")
    assert "[CartPole-v1]" in load_settings(ppo, "ppo", "CartPole-v1").source
    assert "[atari]" in load_settings(ppo, "ppo", "PongNoFrameskip-v4").source
    assert "[HalfCheetah-v5]" in load_settings(ppo, "ppo", "HalfCheetah-v4").source
    assert "[default]" in load_settings(ppo, "ppo", "Blackjack-v1").source


def test_conventions_of_the_zoo(tmp_path: Path) -> None:
    text = """
CartPole-v1:
  n_timesteps: 1e4
  learning_rate: lin_3e-4
  train_freq: [1, episode]
  policy_kwargs: "dict(net_arch=[8], activation_fn=nn.Tanh)"
  normalize: "dict(norm_obs=True, norm_reward=False)"
  env_wrapper: [gymnasium.wrappers.NormalizeReward, {gymnasium.wrappers.TimeAwareObservation: {flatten: true}}]
  gamma: 0.9
"""
    path = tmp_path / "own.yml"
    path.write_text(text)
    settings = load_settings(find_algorithm("dqn"), "dqn", "CartPole-v1", str(path), {"n_envs": 2})
    assert settings.n_timesteps == 10_000
    assert settings.arguments["learning_rate"](0.5) == pytest.approx(1.5e-4)
    assert settings.arguments["train_freq"] == (1, "episode")
    assert settings.arguments["policy_kwargs"]["activation_fn"].__name__ == "Tanh"
    assert settings.normalize == {"norm_obs": True, "norm_reward": False}
    assert [spec.path.rpartition(".")[2] for spec in settings.env_wrapper] == [
        "NormalizeReward",
        "TimeAwareObservation",
    ]
    assert settings.env_wrapper[1].kwargs == {"flatten": True}
    assert settings.n_envs == 2
    assert settings.gamma == 0.9
    assert settings.raw["learning_rate"] == "lin_3e-4"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"learnig_rate": 1}, "Unknown setting 'learnig_rate' for sac .*Did you mean 'learning_rate'"),
        ({"learning_rate": "linear"}, "learning_rate: .*linear"),
        ({"n_envs": 0}, "n_envs must be a whole number of at least 1, got 0"),
        ({"n_timesteps": 1.5}, "n_timesteps must be a whole number"),
        ({"normalize": [1]}, "normalize must be a mapping"),
        ({"env_wrapper": [3]}, "env_wrapper: 3 is neither"),
        ({"noise_type": "nomral"}, "noise_type must be normal or ornstein-uhlenbeck, got 'nomral'"),
        ({"noise_type": "normal", "noise_std": -1}, "noise_std must be a number of at least 0, got -1"),
        ({"policy": "no.such.Policy"}, "no.such.Policy"),
    ],
)
def test_mistakes_are_named(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        interpret(find_algorithm("sac"), "sac", raw, "test")


def test_noise_needs_an_algorithm_that_takes_it() -> None:
    with pytest.raises(ZooError, match="ppo takes no action noise"):
        interpret(find_algorithm("ppo"), "ppo", {"noise_type": "normal"}, "test")


def test_noise() -> None:
    td3 = find_algorithm("td3")
    noise = interpret(td3, "td3", {"noise_type": "normal", "noise_std": 0.0}, "test").action_noise(2)
    assert isinstance(noise, NormalActionNoise)
    assert (noise() == 0).all()
    assert noise().shape == (2,)
    kind = interpret(td3, "td3", {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}, "test").action_noise(3)
    assert isinstance(kind, OrnsteinUhlenbeckActionNoise)
    assert interpret(td3, "td3", {}, "test").action_noise(3) is None


def test_setting_files_are_data(tmp_path: Path) -> None:
    dqn = find_algorithm("dqn")
    with pytest.raises(ZooError, match=r"'settings,json' must be a .yml or .py file, or the name of a Python module"):
        load_settings(dqn, "dqn", "CartPole-v1", "settings,json")
    with pytest.raises(ZooError, match="does not exist"):
        load_settings(dqn, "dqn", "CartPole-v1", str(tmp_path / "missing.yml"))
    (other := tmp_path / "other.yml").write_text("Other-v1: {n_envs: 1}")
    with pytest.raises(ZooError, match="No settings for --env 'CartPole-v1'"):
        load_settings(dqn, "dqn", "CartPole-v1", str(other))


def test_what_was_read_is_the_readers_own_and_what_was_written_since_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "own.yml"
    path.write_text("a: {b: 1}")
    read_yaml_file(path)["a"]["b"] = 2
    assert read_yaml_file(path) == {"a": {"b": 1}}
    path.write_text("a: 3")
    assert read_yaml_file(path) == {"a": 3}
