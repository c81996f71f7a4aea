"""The article on offline learning, in polyak's words and cut short: SAC records, CQL learns from that."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import CQL, SAC, Dataset, EvalCallback
from polyak.callbacks import StopTrainingOnMaxEpisodes
from polyak.envs import Monitor
from polyak.zoo.plots.curves import moving_mean

pytest.importorskip("matplotlib")
COMMON: dict[str, Any] = {
    "policy_kwargs": {"net_arch": {"pi": [16], "qf": [16, 16]}, "softplus_std": True},
    "ent_coef": "auto_0.01",
    "target_entropy": -1.0,
    "gamma": 0.99,
    "tau": 0.005,
    "batch_size": 64,
    "compile": False,
    "device": "cpu",
    "seed": 0,
}


def short() -> gym.Env:
    """Pendulum with episodes of 50 steps and the article's rewards, (r + 8) / 8."""
    return gym.wrappers.TransformReward(gym.make("Pendulum-v1", max_episode_steps=50), lambda reward: (reward + 8) / 8)


def test_sac_records_and_cql_learns_from_it(tmp_path: Path) -> None:
    rates = {"actor": 3e-4, "critic": 3e-3, "ent_coef": 3e-4}
    agent = SAC("MlpPolicy", Monitor(short()), buffer_size=100_000, learning_starts=100, learning_rates=rates, **COMMON)
    assert agent.learner.temperature().item() == pytest.approx(0.01)
    agent.learn(10_000, StopTrainingOnMaxEpisodes(4))
    assert agent.num_timesteps == 4 * 50
    assert agent._n_updates == 4 * 50 - 100 - 1, "the step that ends the last episode stops the training at once"
    returns = agent.env.env_method("get_episode_rewards")[0]
    assert moving_mean(np.array(returns), 9)[-1] == pytest.approx(np.mean(returns))

    data = Dataset.from_model(agent)
    assert (len(data), len(data.returns)) == (199, 4), "that step is stored when training goes on"
    np.testing.assert_allclose(data.returns[:3], returns[:3], rtol=1e-5)

    conservative: dict[str, Any] = {"conservative_weight": 5.0, "n_action_samples": 5, "soft_q_backup": True}
    learner = CQL("MlpPolicy", data, learning_rate=3e-3, actor_learning_rate=3e-4, **conservative, **COMMON)
    epochs, updates = 3, 4
    often: dict[str, Any] = {"eval_freq": updates, "n_eval_episodes": 1, "deterministic": False}
    evaluation = EvalCallback(Monitor(short()), log_path=str(tmp_path), verbose=0, **often)
    learner.learn(epochs * updates, evaluation)
    assert learner._n_updates == epochs * updates
    assert np.shape(evaluation.evaluations_results) == (epochs, 1)
    assert {name: optimizer.param_groups[0]["lr"].item() for name, optimizer in learner.learner.optimizers.items()} == (
        pytest.approx({"actor": 3e-4, "critic": 3e-3, "ent_coef": 3e-4})
    )
    assert learner.predict(np.zeros(3, np.float32))[0].shape == (1,)
