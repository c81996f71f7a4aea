"""What users override in Stable-Baselines3's classes takes effect here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import polyak
from polyak.algorithms.ars import ascent_direction
from polyak.compat.contrib import ARS, TRPO, CrossQ
from polyak.compat.contrib.ars.policies import ARSPolicy
from polyak.compat.contrib.common.vec_env import AsyncEval
from polyak.compat.contrib.crossq.policies import CrossQPolicy
from polyak.compat.sb3 import A2C, DDPG, DQN, PPO, SAC, TD3
from polyak.compat.sb3.common.monitor import Monitor
from polyak.compat.sb3.common.off_policy_algorithm import OffPolicyAlgorithm
from polyak.compat.sb3.common.on_policy_algorithm import OnPolicyAlgorithm
from polyak.compat.sb3.common.policies import ActorCriticPolicy, BasePolicy, ContinuousCritic
from polyak.compat.sb3.common.torch_layers import BaseFeaturesExtractor
from polyak.compat.sb3.common.utils import polyak_update
from polyak.compat.sb3.common.vec_env import DummyVecEnv
from polyak.compat.sb3.dqn.policies import DQNPolicy
from polyak.compat.sb3.sac.policies import Actor, SACPolicy
from polyak.compat.sb3.td3.policies import TD3Policy

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
REPLAY: dict[str, Any] = {**SMALL, "buffer_size": 200, "learning_starts": 10, "batch_size": 8}


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_policy_that_scales_actions_its_own_way(tmp_path: Path) -> None:
    class Halved(SACPolicy):
        def unscale_action(self, scaled_action: np.ndarray) -> np.ndarray:
            return super().unscale_action(scaled_action) / 2

        def scale_action(self, action: np.ndarray) -> np.ndarray:
            return super().scale_action(action * 2)

    seen: list[float] = []

    class Watched(gym.Wrapper):
        def step(self, action: Any) -> Any:
            seen.append(float(abs(action[0])))
            return super().step(action)

    model = SAC(Halved, Watched(gym.make("Pendulum-v1")), **{**REPLAY, "learning_starts": 0}, seed=0)
    model.learn(40)
    assert max(seen) <= 1, "half of Pendulum's range"
    stored = np.abs(model.replay_buffer.actions[:40, 0, 0])
    np.testing.assert_allclose(seen, stored, rtol=4 * np.finfo(np.float32).eps)  # 2 * stored / 2, in float32
    obs = np.stack([model.observation_space.sample() for _ in range(50)])
    assert np.abs(model.predict(obs)[0]).max() <= 1


def test_an_actor_critic_with_its_own_networks_and_forward_pass() -> None:
    calls = {"forward": 0}

    class Halves(nn.Module):
        latent_dim_pi, latent_dim_vf = 4, 6

        def __init__(self, features: int) -> None:
            super().__init__()
            self.pi, self.vf = nn.Linear(features, 4), nn.Linear(features, 6)

        def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.forward_actor(features), self.forward_critic(features)

        def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.pi(features))

        def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.vf(features))

    class Mine(ActorCriticPolicy):
        def __init__(self, observation_space: Any, action_space: Any, lr_schedule: Any, *args: Any, **kwargs: Any):
            super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs, ortho_init=False)

        def _build_mlp_extractor(self) -> None:
            self.mlp_extractor = Halves(self.features_dim)

        def forward(self, obs: Any, deterministic: bool = False) -> Any:
            calls["forward"] += 1
            actions, values, log_prob = super().forward(obs, deterministic)
            return actions, torch.full_like(values, 7.0), log_prob

    model = PPO(Mine, "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
    assert calls["forward"] == 16
    assert np.allclose(model.rollout_buffer.values, 7.0), "what forward() returns is what the rollout holds"
    assert isinstance(model.policy.mlp_extractor, Halves)
    assert model.policy.ortho_init is False


def test_a_policy_brings_its_optimizer_and_a_user_may_change_it() -> None:
    model = A2C("MlpPolicy", "CartPole-v1", **SMALL)
    assert isinstance(model.policy.optimizer, torch.optim.RMSprop)
    assert model.learner.optimizers["policy"] is model.policy.optimizer
    model.policy.optimizer = torch.optim.SGD(model.policy.parameters(), lr=0.0)
    model.lr_schedule = lambda _: 0.0
    before = model.policy.parameters_to_vector()
    model.learn(20)
    assert np.array_equal(before, model.policy.parameters_to_vector())
    assert model.learner.optimizers["policy"] is model.policy.optimizer

    class Built(ActorCriticPolicy):
        def _build(self, lr_schedule: Any) -> None:
            super()._build(lr_schedule)
            self.optimizer = torch.optim.Adagrad(self.parameters(), lr=lr_schedule(1))

    model = PPO(Built, "CartPole-v1", n_steps=16, batch_size=16, learning_rate=0.01, device="cpu").learn(16)
    assert isinstance(model.learner.optimizers["policy"], torch.optim.Adagrad)
    assert model.policy.optimizer.state, "it made the steps"


def test_continuous_policies_with_their_own_actor_and_critic() -> None:
    class MyActor(Actor):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.latent_pi = nn.Sequential(nn.Linear(self.features_dim, 8), nn.Tanh())

    class MyCritic(ContinuousCritic):
        calls = 0

        def forward(self, obs: Any, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            type(self).calls += 1
            return tuple(q + 1 for q in super().forward(obs, actions))

    class Mine(SACPolicy):
        def make_actor(self, features_extractor: Any = None) -> MyActor:
            return MyActor(**self._update_features_extractor(self.actor_kwargs, features_extractor)).to(self.device)

        def make_critic(self, features_extractor: Any = None) -> MyCritic:
            return MyCritic(**self._update_features_extractor(self.critic_kwargs, features_extractor)).to(self.device)

    model = SAC(Mine, "Pendulum-v1", **REPLAY).learn(30)
    assert isinstance(model.actor, MyActor)
    assert isinstance(model.critic_target, MyCritic)
    assert MyCritic.calls > 30
    assert model.actor.squash_output
    assert model.predict(np.zeros(3, np.float32))[0].shape == (1,)


ALGORITHMS_WITH_A_POLICY = [(DQN, DQNPolicy), (TD3, TD3Policy), (SAC, SACPolicy), (CrossQ, CrossQPolicy)]


@pytest.mark.parametrize(("algorithm", "policy"), ALGORITHMS_WITH_A_POLICY)
def test_an_overridden_predict_decides_what_is_done(algorithm: Any, policy: Any) -> None:
    class Mine(policy):
        calls = 0

        def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
            type(self).calls += 1
            return super()._predict(observation, deterministic)

    env = "CartPole-v1" if algorithm is DQN else "Pendulum-v1"
    options = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0} if algorithm is DQN else {}
    model = algorithm(Mine, env, **REPLAY, **options).learn(20)
    assert Mine.calls >= 10
    assert isinstance(model.policy, BasePolicy)


def test_policies_and_networks_are_saved_by_themselves(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for model in (algorithm("MlpPolicy", "Pendulum-v1", **REPLAY) for algorithm in (CrossQ, SAC, TD3)):
        for number, network in enumerate((model.policy, model.actor)):
            network.save(tmp_path / f"{number}.pkl")
            again = type(network).load(tmp_path / f"{number}.pkl")
            assert np.array_equal(
                again.predict(observations, deterministic=True)[0], network.predict(observations, deterministic=True)[0]
            )
    (tmp_path / "x.pkl").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not a policy file"):
        SACPolicy.load(tmp_path / "x.pkl")


# -- algorithms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [A2C, CrossQ, DDPG, DQN, PPO, SAC, TD3, TRPO])
def test_hyper_parameters_may_be_given_by_position(algorithm: Any) -> None:
    env = "CartPole-v1" if algorithm in (A2C, DQN, PPO) else "Pendulum-v1"
    second = {A2C: ("n_steps", 7), PPO: ("n_steps", 64), TRPO: ("n_steps", 128)}.get(algorithm, ("buffer_size", 77))
    model = algorithm("MlpPolicy", env, 1e-3, second[1])
    assert model.learning_rate == 1e-3
    assert getattr(model, second[0]) == second[1]
    assert issubclass(algorithm, getattr(polyak, algorithm.__name__))
    assert issubclass(algorithm, OnPolicyAlgorithm if algorithm in (A2C, PPO, TRPO) else OffPolicyAlgorithm)
    with pytest.raises(TypeError, match="multiple values for keyword argument"):
        algorithm("MlpPolicy", env, 1e-3, second[1], **{second[0]: 5})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        algorithm("MlpPolicy", env, no_such_option=1)


def test_unknown_arguments_of_policies_are_refused_by_name() -> None:
    box, one = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,))
    for policy in (ActorCriticPolicy, SACPolicy, TD3Policy, CrossQPolicy):
        with pytest.raises(TypeError, match=rf"{policy.__name__}.*'net_arhc'\. Did you mean 'net_arch'"):
            policy(box, one, lambda _: 0.0, net_arhc=[4])
        with pytest.raises(TypeError, match=rf"{policy.__name__}.*lr_schedule"):
            policy(box, one)


def test_ars_as_in_sb3_contrib() -> None:
    with pytest.warns(UserWarning, match="n_top=5 is more than the n_delta=2 directions"):
        model = ARS("LinearPolicy", "Pendulum-v1", 2, 5, 0.1, 0.2, False, 1.0, 3, {"with_bias": True}, 10, None, 7)
    first = model.n_delta, model.n_top, model.learning_rate, model.delta_std, model.zero_policy
    assert first == (2, 2, 0.1, 0.2, False)
    assert (model.alive_bonus_offset, model.n_eval_episodes, model.stats_window_size, model.seed) == (1.0, 3, 10, 7)
    assert len(model.policy.action_net) == 1
    assert model.policy.action_net[0].bias is not None
    table = torch.eye(2), torch.tensor([5.0, 1.0]), torch.tensor([3.0, 2.0])
    step = torch.tensor([5.0 - 3.0, 1.0 - 2.0]) / (2 * np.std([5.0, 1.0, 3.0, 2.0], ddof=1))
    found = ascent_direction(*table, 2, model.learner.correction)[0]
    torch.testing.assert_close(found, step.float())
    with pytest.raises(NotImplementedError, match="vec_env_cls=SubprocVecEnv"):
        AsyncEval([], model.policy)


def test_a_policy_of_a_users_own_for_ars(tmp_path: Path) -> None:
    class Halved(ARSPolicy):
        """Its network acts at half strength."""

        def forward(self, obs: Any) -> torch.Tensor:
            return super().forward(obs) / 2

    model = ARS(
        Halved, polyak.envs.make_vec_env("Pendulum-v1", 2), n_delta=1, policy_kwargs={"net_arch": [4]}, seed=0
    ).learn(400)
    obs = np.ones((1, 3), np.float32)
    assert abs(model.predict(obs)[0]).max() <= 1, "half of what the space allows"
    model.policy.save(tmp_path / "policy")
    np.testing.assert_array_equal(Halved.load(tmp_path / "policy").predict(obs)[0], model.predict(obs)[0])


def test_a_file_written_by_polyaks_own_class_loads_and_normalises_once(tmp_path: Path) -> None:
    polyak.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL).save(tmp_path / "m.zip")
    assert isinstance(PPO.load(tmp_path / "m.zip"), PPO)
    assert not PPO("MlpPolicy", "CartPole-v1").normalisation.by_itself


def test_attributes_of_a_subclass_and_of_a_program_are_saved(tmp_path: Path) -> None:
    class Mine(PPO):
        def __init__(self, *args: Any, flavour: str = "plain", **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flavour = flavour

    model = Mine("MlpPolicy", "CartPole-v1", flavour="sweet", n_steps=16, batch_size=16, **SMALL)
    model.note, model.table = "by hand", np.arange(3)
    model.learn(16)
    model.save(tmp_path / "m.zip")
    again = Mine.load(tmp_path / "m.zip", env="CartPole-v1")
    assert (again.flavour, again.note, again.table.tolist()) == ("sweet", "by hand", [0, 1, 2])
    assert again.learn(16).num_timesteps == 16
    again.save(tmp_path / "n.zip")
    assert Mine.load(tmp_path / "n.zip").note == "by hand"
    model.hook = lambda: 1
    model.save(tmp_path / "m.zip")
    with pytest.warns(UserWarning, match="hook"):
        assert not hasattr(Mine.load(tmp_path / "m.zip"), "hook")
    assert Mine.load(tmp_path / "m.zip", trust=True).hook() == 1


# -- acting and storing ------------------------------------------------------------------------------------------------


def test_an_algorithm_of_a_users_own_says_what_it_can_handle() -> None:
    class Own(OffPolicyAlgorithm):
        policy_aliases = {"MlpPolicy": SACPolicy}

    two = DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2)
    with pytest.raises(ValueError, match="2 environments, but Own learns in one"):
        Own("MlpPolicy", two, 1e-3)
    assert Own("MlpPolicy", two, 1e-3, support_multi_env=True).n_envs == 2
    with pytest.raises(ValueError, match="action space"):
        Own("MlpPolicy", "CartPole-v1", 1e-3, supported_action_spaces=(gym.spaces.Box,))
    with pytest.raises(ValueError, match="use_sde=True explores in a Box"):
        Own("MlpPolicy", "CartPole-v1", 1e-3, use_sde=True)
    for wraps in (True, False):
        own = Own("MlpPolicy", "Pendulum-v1", 1e-3, monitor_wrapper=wraps, sde_support=wraps)
        assert own.env.env_is_wrapped(Monitor) == [wraps]
        assert ("use_sde" in own.policy_kwargs) == wraps


class Normed(BaseFeaturesExtractor):
    """A layer with a batch norm behind it."""

    def __init__(self, observation_space: gym.Space):
        super().__init__(observation_space, 4)
        self.net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)


def test_a_training_step_of_a_users_own_copies_the_statistics_of_batch_norms() -> None:
    class Own(TD3):
        def train(self, gradient_steps: int, batch_size: int = 100) -> None:
            self.policy.set_training_mode(True)
            self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
            for _ in range(gradient_steps):
                self._n_updates += 1
                data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
                with torch.no_grad():
                    noise = torch.randn_like(data.actions) * self.target_policy_noise
                    noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                    actions = (self.actor_target(data.next_observations) + noise).clamp(-1, 1)
                    q = torch.cat(self.critic_target(data.next_observations, actions), 1).amin(1, keepdim=True)
                    target = data.rewards + (1 - data.dones) * self.gamma * q
                losses = [F.mse_loss(q, target) for q in self.critic(data.observations, data.actions)]
                self.critic.optimizer.zero_grad()
                sum(losses).backward()
                self.critic.optimizer.step()
                if self._n_updates % self.policy_delay == 0:
                    loss = -self.critic.q1_forward(data.observations, self.actor(data.observations)).mean()
                    self.actor.optimizer.zero_grad()
                    loss.backward()
                    self.actor.optimizer.step()
                    polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                    polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
                    polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
                    polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)

    options = {**REPLAY, "policy_kwargs": {"net_arch": [8], "features_extractor_class": Normed}, "seed": 0}
    own, plain = (cls("MlpPolicy", "Pendulum-v1", **options).learn(15) for cls in (Own, TD3))
    assert own._n_updates == plain._n_updates == 5
    moved, lagging = plain.critic_batch_norm_stats, plain.critic_batch_norm_stats_target
    assert not any(torch.equal(one, other) for one, other in zip(moved, lagging, strict=True)), "the fifth is no second"
    expected = plain.policy.state_dict()
    for name, value in own.policy.state_dict().items():
        if "num_batches" not in name:  # of copies, which nothing reads
            torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
    for model in (SAC("MlpPolicy", "Pendulum-v1", **options), DQN("MlpPolicy", "CartPole-v1", **REPLAY)):
        assert len(model.batch_norm_stats) == len(model.batch_norm_stats_target) == 2 * isinstance(model, SAC)


def test_an_overridden_sample_action_chooses_the_actions() -> None:
    class Mine(SAC):
        seen: Any = None

        def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
            type(self).seen = learning_starts, action_noise, n_envs, self._last_obs.copy()
            action, buffer_action = super()._sample_action(learning_starts, action_noise, n_envs)
            return 0 * action, 0 * buffer_action + 0.25

    model = Mine("MlpPolicy", "Pendulum-v1", **REPLAY).learn(30)
    assert Mine.seen[:3] == (10, None, 1)
    assert Mine.seen[3].shape == (1, 3)
    assert (model.replay_buffer.actions[:30] == 0.25).all()
    assert Mine("MlpPolicy", "Pendulum-v1", **REPLAY).learn(5).replay_buffer.size() == 5


def test_what_an_override_passes_on_to_sample_action_counts() -> None:
    class Bold(TD3):
        def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
            return super()._sample_action(0, None, n_envs)

    def policy_only(cls: Any) -> np.ndarray:
        model = cls("MlpPolicy", "Pendulum-v1", seed=0, **{**REPLAY, "learning_starts": 100})
        return model.learn(20).replay_buffer.actions[:20].flatten()

    bold, random = policy_only(Bold), policy_only(TD3)
    assert np.abs(bold).max() < np.abs(random).max()
    assert not np.array_equal(bold, random)


def test_an_overridden_store_transition_decides_what_is_stored() -> None:
    class Mine(DQN):
        def _store_transition(
            self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
        ) -> None:
            assert self._last_obs.shape == new_obs.shape
            assert not np.array_equal(self._last_obs, new_obs)
            super()._store_transition(replay_buffer, buffer_action, new_obs, reward - 5, dones, infos)

    model, plain = (
        cls("MlpPolicy", "CartPole-v1", seed=0, **{**REPLAY, "learning_starts": 100}) for cls in (Mine, DQN)
    )
    one, other = model.learn(60).replay_buffer, plain.learn(60).replay_buffer
    assert (one.rewards[:60] == -4).all()
    for name in ("observations", "next_observations", "dones", "actions"):
        assert getattr(one, name)[:60].shape == getattr(other, name)[:60].shape
    ends = one.dones[:60].flatten() > 0
    assert ends.any()
    following = one.observations[1:60][~ends[:59]]
    np.testing.assert_array_equal(one.next_observations[:59][~ends[:59]], following)


def test_collect_rollouts_is_what_training_calls() -> None:
    seen: list[Any] = []

    class On(PPO):
        def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int) -> bool:
            seen.append((env is self.env, rollout_buffer is self.rollout_buffer, n_rollout_steps))
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    class Off(TD3):
        def collect_rollouts(self, env: Any, callback: Any, train_freq: Any, replay_buffer: Any, **options: Any) -> Any:
            seen.append((train_freq.frequency, replay_buffer is self.replay_buffer, sorted(options)))
            return super().collect_rollouts(
                env, callback, train_freq, replay_buffer, **{**options, "learning_starts": 0}
            )

    On("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL).learn(16)
    model = Off("MlpPolicy", "Pendulum-v1", train_freq=3, **REPLAY).learn(3)
    assert seen == [(True, True, 16), (3, True, ["action_noise", "learning_starts", "log_interval"])]
    assert model.learning_starts == 10


def test_an_overridden_predict_explores() -> None:
    class Stubborn(DQN):
        """Does one thing, unless asked for the best."""

        def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False):  # type: ignore[no-untyped-def]
            if deterministic:
                return super().predict(observation, state, episode_start, deterministic)
            return np.ones(len(observation), dtype=np.int64), state

    model = Stubborn("MlpPolicy", "CartPole-v1", **REPLAY, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    model.learn(60)
    assert (model.replay_buffer.actions[10:60] == 1).all()
    assert len(set(model.replay_buffer.actions[:10].flatten().tolist())) == 2, (
        "before learning_starts it acts at random"
    )

    class Outward(SAC):
        """Actions in the environment's units."""

        def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False):  # type: ignore[no-untyped-def]
            return np.full((len(observation), 1), 1.0, np.float32), state

    model = Outward("MlpPolicy", "Pendulum-v1", **REPLAY).learn(30)
    assert np.allclose(model.replay_buffer.actions[10:30], 0.5), "stored as the network knows them"
