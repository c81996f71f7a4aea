"""Noise that is linear in the state, of matrices that last an episode (SDE, before gSDE)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import A2C, PPO, SAC, CrossQ
from polyak.callbacks import BaseCallback
from polyak.collecting.exploration import EpisodicExploration
from polyak.envs import DummyVecEnv
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.engine.program import Program
from polyak.nn import ActorCriticPolicy, ContinuousPolicy, PolicyError
from tests.tolerance import bound, drift
from tests.worlds import World

VECTOR, BOX = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
LINEAR: dict[str, Any] = {"net_arch": [8], "sde_on_states": True}


class Lasts(World):
    """Episodes of so many steps."""

    observation_space, action_space = VECTOR, BOX

    def look(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def act(self, action: np.ndarray) -> float:
        return float(action.sum())


def make(cls: Any = SAC, env: Any = None, **options: Any) -> Any:
    if env is None:
        env = DummyVecEnv([lambda: Lasts(length=3), lambda: Lasts(length=5)])
    small: dict[str, Any] = {"device": "cpu", "seed": 0, "compile": False, "policy_kwargs": LINEAR}
    if cls in (SAC, CrossQ):
        small |= {"learning_starts": 6, "buffer_size": 500, "batch_size": 16, "gradient_steps": -1}
        small |= {"random_warm_up": False}
    if cls is PPO:
        small |= {"n_steps": 8, "batch_size": 8, "n_epochs": 2}
    return cls("MlpPolicy", env, use_sde=True, sde_sample_freq="episode", **{**small, **options})


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_the_noise_of_an_actor_critic_is_its_matrix_times_the_observation(own: bool) -> None:
    torch.manual_seed(0)
    policy = ActorCriticPolicy(VECTOR, BOX, use_sde=True, share_features_extractor=not own, **LINEAR)
    obs = torch.rand(5, 3)
    assert policy.log_std.shape == (3, 2)
    with torch.no_grad():
        policy.log_std.copy_(torch.randn(3, 2))
        theta = policy.exploration_noise.shared * policy.log_std.exp()
        noise = policy.act(obs) - policy.act(obs, deterministic=True)
    torch.testing.assert_close(noise, obs @ theta, rtol=0, atol=bound(40, 4))
    variance = policy.get_distribution(obs).std ** 2  # over matrices
    torch.testing.assert_close(variance, obs**2 @ policy.log_std.exp() ** 2 + 1e-6)


def test_the_noise_of_sacs_actor_is_its_matrix_times_the_observation() -> None:
    torch.manual_seed(0)
    policy = ContinuousPolicy(VECTOR, BOX, use_sde=True, log_std_init=-1, **LINEAR)
    obs, actor = torch.rand(5, 3), policy.actor
    assert actor.get_std().shape == (3, 2)
    with torch.no_grad():
        gaussian = actor.get_distribution(obs).gaussian
        noise = gaussian.sample() - gaussian.mean
        theta = actor.exploration_noise.shared * actor.log_std.exp()
    torch.testing.assert_close(noise, obs @ theta, rtol=0, atol=bound(40, 4))


# -- once an episode ---------------------------------------------------------------------------------------------------


def matrices(model: Any) -> np.ndarray:
    """[N, L, A] those that the environments' next actions are made with."""
    policy = model.policy
    noise = policy.actor.exploration_noise if hasattr(policy, "actor") else policy.exploration_noise
    drawn = noise.own if len(noise.own) > 1 else noise.shared[None]
    return drawn.detach().numpy().copy()


class Watches(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[np.ndarray] = []
        self.dones: list[np.ndarray] = []

    def _on_step(self) -> bool:
        self.seen.append(matrices(self.model))
        self.dones.append(np.array(self.locals["dones"]))
        return True


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("cls", [SAC, PPO])
def test_a_matrix_lasts_an_episode_and_no_longer(cls: Any, n_envs: int) -> None:
    """Through rollouts and gradient steps, which draw matrices of their own."""
    watch = Watches()
    model = make(cls, DummyVecEnv([lambda: Lasts(length=3), lambda: Lasts(length=5)][:n_envs])).learn(48, watch)
    assert model._n_updates > 3
    for before, after, dones in zip(watch.seen, watch.seen[1:], watch.dones, strict=False):
        for env in range(n_envs):
            assert np.array_equal(before[env], after[env]) != dones[env]
    assert np.unique(np.concatenate(watch.seen)[:, 0, 0]).size > 8


def test_matrices_are_standard_normal() -> None:
    part, policy = EpisodicExploration(), ActorCriticPolicy(VECTOR, BOX, use_sde=True, **LINEAR)
    torch.manual_seed(0)
    drawn = []
    for _ in range(2_000):
        part.before(policy, np.array([True, False]))
        drawn.append(policy.exploration_noise.own.clone())
    first, second = torch.stack(drawn).unbind(1)
    assert first.mean().abs() < 5 / 12_000**0.5
    assert (first.var() - 1).abs() < 5 * (2 / 12_000) ** 0.5
    assert (second == second[0]).all()


@pytest.mark.parametrize("cls", [SAC, PPO, A2C])
def test_resumed_in_an_episode_it_is_bit_equal(cls: Any, tmp_path: Path) -> None:
    whole = make(cls).learn(32)
    whole.save(tmp_path / "half", include=whole.saves_also)
    whole.learn(32, reset_num_timesteps=False)
    env = DummyVecEnv([lambda: Lasts(length=3), lambda: Lasts(length=5)])
    resumed = cls.load(tmp_path / "half", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(32, reset_num_timesteps=False)
    vector = torch.nn.utils.parameters_to_vector
    assert torch.equal(vector(whole.policy.parameters()), vector(resumed.policy.parameters()))


@pytest.mark.parametrize("cls", [SAC, PPO])
def test_traced_it_equals_eager(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    eager, traced = (make(cls, compile=choice).learn(64) for choice in (False, True))
    vector = torch.nn.utils.parameters_to_vector
    ours, theirs = (vector(model.policy.parameters()) for model in (eager, traced))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=drift(eager._n_updates, 3e-4, 16 + 8 + 8))


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyperparameterError, match="sde_sample_freq='episode' cannot be used: only noise that depends"):
        SAC("MlpPolicy", "Pendulum-v1", sde_sample_freq="episode")
    with pytest.raises(HyperparameterError, match="sde_sample_freq='rollout' cannot be used"):
        PPO("MlpPolicy", "Pendulum-v1", use_sde=True, sde_sample_freq="rollout")
    for cls in (ActorCriticPolicy, ContinuousPolicy):
        with pytest.raises(PolicyError, match="sde_on_states=True needs noise that depends on states: add use_sde"):
            cls(VECTOR, BOX, **LINEAR)
    with pytest.raises(PolicyError, match="sde_on_states=True cannot be used: RecurrentActorCriticPolicy has hidden"):
        make(A2C, policy_kwargs={**LINEAR, "memory": "gru"})
    with pytest.raises(ValueError, match="sde_sample_freq='episode' has no equal in Stable-Baselines3"):
        make(SAC, policy_kwargs={"net_arch": [8]}, random_warm_up=True).save_sb3(tmp_path / "model")
