"""What ``env_runners()`` says of collecting: which actions are taken, here and in other processes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak.compat.ray import APPOConfig, DQNConfig, IMPALAConfig, PPOConfig, SACConfig
from polyak.compat.ray.environments import portable
from polyak.compat.ray.processes.runner_worker import RunnerWorker
from polyak.distributed.weights import flat_weights

LENGTHS = [3, 5, 4, 6]
"""Of successive episodes of :class:`Recorded`."""


class Recorded(gym.Env[np.ndarray, Any]):
    """Observations [10 * episode + step, of which environment]; rewards of 1; what was done is kept."""

    def __init__(self, context: Any) -> None:
        self.observation_space = gym.spaces.Box(-100, 1000, (2,), np.float32)
        continuous = context.get("continuous", False)
        self.action_space = gym.spaces.Box(-1, 1, (1,)) if continuous else gym.spaces.Discrete(5)
        self.truncates = context.get("truncates", False)
        self.episode, self.t, self.index = -1, 0, context.vector_index
        self.done: list[tuple[np.ndarray, Any]] = []

    def _seen(self) -> np.ndarray:
        return np.array([10 * self.episode + self.t, self.index], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.done.append((self._seen(), action))
        self.t += 1
        ended = self.t >= LENGTHS[(self.episode + self.index) % 4]
        return self._seen(), 1.0, ended and not self.truncates, ended and self.truncates, {}


def config(cls: Any = PPOConfig, envs: int = 1, runners: int = 0, **training: Any) -> Any:
    made = cls().environment(Recorded, env_config={"continuous": cls is SACConfig}).debugging(seed=1)
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs).learners(num_learners=0)
    made.framework(torch_compile_learner=False)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=40)
    made.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], "fcnet_activation": "relu"})
    if cls in (DQNConfig, SACConfig):
        return made.training(train_batch_size_per_learner=8, num_steps_sampled_before_learning_starts=20, **training)
    made.training(train_batch_size_per_learner=40, **training)
    return made.training(minibatch_size=20, num_epochs=2) if cls is PPOConfig else made


def actions_of(env: Any) -> list[tuple[np.ndarray, Any]]:
    return [each for one in env.unwrapped.envs for each in one.unwrapped.done]


# -- explore -----------------------------------------------------------------------------------------------------------

FACES = [PPOConfig, IMPALAConfig, APPOConfig, DQNConfig, SACConfig]


@pytest.mark.parametrize("cls", FACES)
def test_without_exploration_the_best_actions_are_taken(cls: Any) -> None:
    """Of learning rates of 0, so that the policy is the one that acted."""
    rates = {"lr": 0.0} if cls is not SACConfig else dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), 0.0)
    for explore in (False, True):
        with config(cls, envs=2, **rates).env_runners(explore=explore).build_algo() as algo:
            algo.train()
            done = actions_of(algo.model.get_env())
            best = [algo.compute_single_action(seen) for seen, _ in done]
        same = np.array([np.allclose(one, action, atol=1e-5) for one, (_, action) in zip(best, done, strict=True)])
        assert len(done) >= 40
        assert same.all() == (not explore)


@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig])
def test_runners_elsewhere_do_not_explore_either(cls: Any) -> None:
    made = config(cls, envs=2, runners=1).env_runners(explore=False, rollout_fragment_length=20)
    runner = RunnerWorker(portable(made), 1)
    policy = runner.model.policy
    runner.sample(flat_weights(policy), 0)
    done = actions_of(runner.env)
    assert len(done) >= 40
    assert [policy.predict(seen, deterministic=True)[0] for seen, _ in done] == [action for _, action in done]


@pytest.mark.parametrize(("given", "explores"), [(None, False), ({"explore": True}, True)])
def test_evaluation_explores_as_its_config_says(given: Any, explores: bool) -> None:
    made = config().env_runners(explore=False).evaluation(evaluation_config=given)
    assert made.evaluation_settings().explore is explores


@pytest.mark.parametrize("cls", [DQNConfig, SACConfig])
def test_actions_before_learning_starts_are_explored_as_later(cls: Any) -> None:
    """RLlib draws none uniformly: DQN's are the best but for ``epsilon``, SAC's are drawn by the policy."""
    made = config(cls, **({"epsilon": 0.0} if cls is DQNConfig else {}))
    made.training(num_steps_sampled_before_learning_starts=1000)
    with made.build_algo() as algo:
        algo.train()
        assert set(algo.model.runner.actor.exploration) == ({"epsilon_greedy"} if cls is DQNConfig else set())
        if cls is DQNConfig:
            assert all(algo.compute_single_action(seen) == action for seen, action in actions_of(algo.model.get_env()))
