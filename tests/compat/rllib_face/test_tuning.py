"""Ray Tune: trials that are algorithms; what they report, save, restore and reserve."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak.compat.rllib_face import (
    Algorithm,
    APPOConfig,
    DQNConfig,
    PPOConfig,
    SACConfig,
    register_env,
    tune_trainable,
)
from polyak.compat.rllib_face.tuning import bundles, trial_config
from polyak.hyperparameters.declaration import HyperparameterError


def small(**training: Any) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [16]}).debugging(seed=1)
    own = {"train_batch_size_per_learner": 128, "minibatch_size": 64, "num_epochs": 2, "lr": 1e-3}
    return config.training(**{**own, **training}).framework(torch_compile_learner=False)


# -- without Ray -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [PPOConfig(), DQNConfig(), SACConfig(), APPOConfig()])
def test_all_of_a_config_says_as_much_as_the_config(config: Any) -> None:
    """Tune hands over all settings as a dict: only those that differ were set."""
    config.environment("CartPole-v1", env_config={"sutton_barto_reward": True}).training(gamma=0.9)
    config.rl_module(model_config={"fcnet_hiddens": [8]})
    found = trial_config(type(config)(), config.to_dict())
    assert found.changed() == config.changed()
    assert not found.is_frozen


def test_a_space_changes_what_a_config_says() -> None:
    found = trial_config(small(), {"lr": 0.5, "num_envs_per_env_runner": 2})
    assert (found.lr, found.num_envs_per_env_runner, found.num_epochs) == (0.5, 2, 2)
    with pytest.raises(TypeError, match="'lrr'"):
        trial_config(small(), {"lrr": 0.5})
    with pytest.raises(HyperparameterError, match="gamma"):
        trial_config(small(), {"gamma": 2})


def test_values_of_a_grid_are_checked_and_nobody_builds_from_it() -> None:
    config = small(lr={"grid_search": [1e-3, 1e-2]})
    assert config.to_dict()["lr"] == {"grid_search": [1e-3, 1e-2]}
    with pytest.raises(HyperparameterError, match=r"lr.*Only ray\.tune\.Tuner"):
        config.validate()
    with pytest.raises(HyperparameterError, match="lr"):
        small(lr={"grid_search": [1e-3, -1.0]})


def test_a_trial_reserves_what_its_processes_do() -> None:
    assert bundles(PPOConfig()) == [{"CPU": 1.0}]
    config = PPOConfig().env_runners(
        num_env_runners=2, num_cpus_per_env_runner=2, custom_resources_per_env_runner={"simulator": 1}
    )
    assert bundles(config) == [{"CPU": 1.0}, *[{"CPU": 2.0, "simulator": 1.0}] * 2]
    config.learners(num_learners=2, num_gpus_per_learner=0.5, num_cpus_per_learner=3)
    assert bundles(config)[3:] == [{"CPU": 3.0, "GPU": 0.5}] * 2
    assert bundles(PPOConfig().learners(num_gpus_per_learner=1)) == [{"CPU": 1.0, "GPU": 1.0}]


# -- on Ray ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tune() -> Iterator[Any]:
    """A Ray of four slots with nothing around it."""
    ray, found = pytest.importorskip("ray"), pytest.importorskip("ray.tune")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield found
    ray.shutdown()


def tuned(tune: Any, trainable: Any, space: Any, folder: Path, stop: dict[str, Any], **options: Any) -> Any:
    config = tune.RunConfig(
        name="study",
        storage_path=str(folder),
        stop=stop,
        verbose=0,
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, checkpoint_frequency=1),
    )
    return tune.Tuner(trainable, param_space=space, run_config=config, **options)


@pytest.mark.slow
def test_a_grid_of_trials_with_checkpoints_and_nested_keys(tune: Any, tmp_path: Path) -> None:
    """Each trial has its value; it ends by a nested key; its checkpoint is one of ours, with the weights of its end."""
    space = small(lr=tune.grid_search([1e-3, 1e-2]))
    stop = {"env_runners/num_env_steps_sampled_lifetime": 300}
    options = {"tune_config": tune.TuneConfig(metric="env_runners/episode_return_mean", mode="max")}
    found = tuned(tune, tune_trainable("PPO"), space, tmp_path, stop, **options).fit()
    assert not found.errors
    assert sorted(result.config["lr"] for result in found) == [1e-3, 1e-2]
    for result in found:
        assert result.metrics["training_iteration"] == 3
        assert result.metrics["env_runners"]["num_env_steps_sampled_lifetime"] == 384
        assert math.isfinite(result.metrics["learners"]["default_policy"]["vf_loss"])
        assert not (Path(result.path) / "config").exists()
        with Algorithm.from_checkpoint(result.checkpoint.path) as algo:
            assert (algo.iteration, algo.config.lr) == (3, result.config["lr"])
            with small(lr=result.config["lr"]).build_algo() as other:
                for _ in range(3):
                    other.train()
                for ours, theirs in zip(_weights(algo), _weights(other), strict=True):
                    np.testing.assert_array_equal(ours, theirs)
    assert found.get_best_result().metrics["env_runners"]["episode_return_mean"] >= 1


def _weights(algo: Algorithm) -> list[np.ndarray]:
    return list(algo.get_weights()["default_policy"].values())


@pytest.mark.slow
def test_a_trial_goes_on_from_its_checkpoint(tune: Any, tmp_path: Path) -> None:
    """One that was cut short is restored by Tune; a config as the base, and a space of random numbers."""
    trainable = tune_trainable(small().env_runners(num_envs_per_env_runner=2))
    space = {"lr": tune.loguniform(1e-4, 1e-2), "num_env_runners": 1}
    first = tuned(tune, trainable, space, tmp_path, {"training_iteration": 2}).fit()[0]
    assert first.error is None
    trial = trainable({**first.config})
    try:
        trial.restore(first.checkpoint)
        result = trial.train()
        assert (result["training_iteration"], result["num_env_steps_sampled_lifetime"]) == (3, 3 * 128)
        assert trial.algorithm.config.lr == first.config["lr"]
        assert trial.algorithm.config.num_env_runners == 1
        assert trial.reset({**first.config, "lr": 0.5, "num_env_runners": 0})
        assert trial.algorithm.config.lr == 0.5
    finally:
        trial.stop()


class Short(gym.Wrapper[Any, Any, Any, Any]):
    """Episodes of three steps."""

    def step(self, action: Any) -> Any:
        *rest, truncated, info = self.env.step(action)
        self.steps += 1
        return *rest, truncated or self.steps == 3, info

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return self.env.reset(**options)


@pytest.mark.slow
def test_trials_know_the_environments_that_have_a_name(tune: Any, tmp_path: Path) -> None:
    trainable = tune_trainable("PPO")
    register_env("short", lambda context: Short(gym.make("CartPole-v1")))  # after it, as programs do
    found = tuned(tune, trainable, small().environment("short"), tmp_path, {"training_iteration": 1}).fit()[0]
    assert found.error is None
    assert found.metrics["env_runners"]["episode_len_max"] == 3


PROGRAM = """
import sys
import gymnasium as gym
import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import get_trainable_cls, register_env

register_env("mine", lambda context: gym.make("CartPole-v1", max_episode_steps=7))
config = get_trainable_cls("PPO").get_default_config().environment("mine")
config = config.training(lr=tune.grid_search([1e-3]), train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
tuner = tune.Tuner(
    "PPO",
    param_space=config,
    run_config=tune.RunConfig(storage_path=sys.argv[1], stop={"training_iteration": 2}, verbose=0),
)
result = tuner.fit()[0]
print(type(config).__module__, result.error, result.metrics["env_runners"]["episode_len_max"], result.config["lr"])
assert get_trainable_cls("PPO").get_default_config().lr == 5e-5
ray.shutdown()
"""


@pytest.mark.slow
def test_the_words_of_programs_for_rllib(tmp_path: Path) -> None:
    """``tune.Tuner("PPO", param_space=config)`` with RLlib's import lines, where Ray is installed."""
    pytest.importorskip("ray.tune")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "polyak", "run", "--only", "ray", "program.py", str(tmp_path / "results")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1].split() == ["polyak.compat.rllib_face.config.ppo", "None", "7.0", "0.001"]
