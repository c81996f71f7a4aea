"""DAgger: who acts, who is asked, what is kept."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak import PPO, DAgger
from polyak.algorithms.dagger import share_of_expert
from polyak.callbacks.callback import BaseCallback
from polyak.envs import VecNormalize, make_vec_env
from polyak.envs.testing import InvalidActionEnvDiscrete
from polyak.experience import collect
from polyak.nn.networks.standardised import StandardisedExtractor
from tests.trials import after_the_pole
from tests.worlds import Drawn

SMALL = {"episodes_per_round": 2, "steps_per_round": 0, "updates_per_round": 3, "buffer_size": 2000, "device": "cpu"}


def small(env: Any = "CartPole-v1", expert: Any = after_the_pole, **changes: Any) -> DAgger:
    return DAgger("MlpPolicy", env, expert=expert, seed=3, **{**SMALL, **changes})


def test_the_share_of_the_expert_falls_as_it_is_said() -> None:
    assert [share_of_expert("first", i, 4, 0.5) for i in range(3)] == [1, 0, 0]
    assert [share_of_expert("linear", i, 4, 0.5) for i in range(6)] == [1, 0.75, 0.5, 0.25, 0, 0]
    assert [share_of_expert("exponential", i, 4, 0.5) for i in range(4)] == [1, 0.5, 0.25, 0.125]


class Acts(BaseCallback):
    """Keeps what was done in the environment, and what is said of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[np.ndarray, int, float]] = []

    def _on_step(self) -> bool:
        runner = self.model.runner
        self.seen.append((self.last, int(self.locals["actions"][0]), runner.actor.beta))
        self.last = self.locals["new_obs"][0]
        return True

    def _on_rollout_start(self) -> None:
        self.last = self.model.runner.obs[0]


def test_rounds_are_of_whole_episodes_and_the_expert_acts_in_his_share() -> None:
    model, acts = small(beta="first"), Acts()
    model.learn(150, acts)
    assert model._rounds >= 2
    assert model._episode_num == 2 * model._rounds
    assert model._n_updates == 3 * model._rounds
    agrees = {beta: [after_the_pole(obs) == act for obs, act, b in acts.seen if b == beta] for beta in (1.0, 0.0)}
    assert all(agrees[1.0])
    assert not all(agrees[0.0])
    assert model.num_timesteps == len(acts.seen)


def test_what_is_kept_is_what_the_expert_says_whoever_acted() -> None:
    model = small(make_vec_env("CartPole-v1", n_envs=3, seed=1), beta=lambda progress: 0.0)
    model.learn(200)
    buffer: Any = model.replay_buffer
    row = buffer.storage.read(np.arange(buffer.size() * 3))
    assert [after_the_pole(obs) for obs in row["observations"]] == row["actions"][:, 0].tolist()


def test_observations_of_all_rounds_are_standardised() -> None:
    shown = collect("CartPole-v1", after_the_pole, 60, seed=0)
    model = small(demonstrations=shown).learn(150)
    buffer: Any = model.replay_buffer
    seen = np.concatenate(
        [shown.transitions().observations, buffer.storage.read(np.arange(buffer.size()))["observations"]]
    )
    norm = next(m for m in model.policy.modules() if isinstance(m, StandardisedExtractor)).norm
    assert int(norm.count) == len(seen)
    np.testing.assert_allclose(norm.mean, seen.mean(0), atol=1e-5)
    np.testing.assert_allclose(norm.var, seen.var(0), rtol=1e-4)


def test_observations_of_numbers_and_choices_are_standardised() -> None:
    space = spaces.Dict(x=spaces.Box(-1, 1, (2,)), choice=spaces.Discrete(3))
    env = gym.wrappers.TimeLimit(Drawn(observation_space=space), 10)
    model = DAgger("MultiInputPolicy", env, expert=lambda obs: int(obs["choice"] > 0), **SMALL).learn(20)
    buffer: Any = model.replay_buffer
    seen = buffer.storage.read(np.arange(buffer.size()))["observations"]
    encoded = np.column_stack([seen["x"], np.eye(3)[seen["choice"][:, 0]]])
    norm = next(m for m in model.policy.modules() if isinstance(m, StandardisedExtractor)).norm
    np.testing.assert_allclose(norm.mean, encoded.mean(0), atol=1e-5)


def test_continuous_actions_are_kept_in_the_units_of_the_network() -> None:
    model = small("Pendulum-v1", lambda obs: np.array([2 * obs[1]]), episodes_per_round=1).learn(200)
    buffer: Any = model.replay_buffer
    row = buffer.storage.read(np.arange(200))
    np.testing.assert_allclose(row["actions"], row["observations"][:, 1:2], atol=1e-6)


def test_a_model_is_asked_about_observations_before_normalisation() -> None:
    expert = PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, seed=1, device="cpu")
    model = small(VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1)), expert).learn(100)
    buffer: Any = model.replay_buffer
    row = buffer.storage.read(np.arange(buffer.size() * 2))
    expected, _ = expert.predict(row["observations"], deterministic=True)
    np.testing.assert_array_equal(row["actions"][:, 0], expected)


def test_masks_reach_an_expert_that_heeds_them() -> None:
    env = InvalidActionEnvDiscrete(dim=5, n_invalid_actions=2)
    expert = PPO("MlpPolicy", env, n_steps=32, batch_size=32, seed=1, device="cpu").learn(32)
    model = small(InvalidActionEnvDiscrete(dim=5, n_invalid_actions=2), expert, beta=lambda progress: 1.0)
    model.learn(100)
    assert model._rounds > 0


@pytest.mark.parametrize("at", [30, 50, 70])
def test_a_file_written_in_the_middle_of_a_round_goes_on(at: int, tmp_path: Path) -> None:
    class SaveAt(BaseCallback):
        _reads_locals = False

        def _on_step(self) -> bool:
            if self.num_timesteps == at:
                self.model.save(tmp_path / "half", include=["replay_buffer"])
                self.env = copy.deepcopy(self.model.get_env())
            return True

    model, callback = small(), SaveAt()
    model.learn(120, callback)
    options = {"resume": True, "force_reset": False, "device": "cpu"}
    resumed = DAgger.load(tmp_path / "half", env=callback.env, expert=after_the_pole, **options)
    resumed.learn(120 - resumed.num_timesteps, SaveAt(), reset_num_timesteps=False)
    assert resumed.num_timesteps == model.num_timesteps
    for name, tensor in model.learner.networks().items():
        assert (tensor == resumed.learner.networks()[name]).all(), name


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    shown = collect("CartPole-v1", None, 50)
    with pytest.raises(ValueError, match="DAgger acts in an environment"):
        small(shown)
    with pytest.raises(ValueError, match="expert=3 cannot be used: it must be a model, or a function"):
        small(expert=3)
    with pytest.raises(ValueError, match="demonstrations have observation_space"):
        small("Pendulum-v1", demonstrations=shown)
    for name, value in (("train_freq", 4), ("gradient_steps", 2), ("learning_starts", 10), ("overlap", True)):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}': .* no use for one"):
            small(**{name: value})
    model = small().learn(30)
    model.save(tmp_path / "model")
    again = DAgger.load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
    np.testing.assert_array_equal(again.predict(np.zeros((3, 4)))[0].shape, (3,))
    with pytest.raises(ValueError, match="expert=None: there is none to ask"):
        again.learn(10)
