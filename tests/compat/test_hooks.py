"""What Stable-Baselines3 calls of a subclass's methods is called here in the same phase, or refused with the reason.

``data/hooks.json`` has the names; ``record_hooks.py`` wrote it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak.compat.sb3 import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer
from polyak.compat.sb3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from polyak.envs import make_vec_env
from polyak.envs.testing import BitFlippingEnv
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat import hooks
from tests.pairs import one_of_each

hooks.ROOT = "polyak.compat.sb3"
RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "hooks.json").read_text())
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0}
REPLAY: dict[str, Any] = {**SMALL, "learning_starts": 10, "buffer_size": 200, "batch_size": 8}


QUICK = ("PPO", "DQN", "SAC", "TRPO", "ARS")
"""One of each loop, and of each peer's own updates; the others extend these."""


def algorithm(name: str) -> Any:
    from polyak.compat import contrib, sb3

    return getattr(sb3, name, None) or getattr(contrib, name)


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", one_of_each(RECORDED["algorithms"], *QUICK))
def test_an_algorithms_methods_are_called_when_the_peer_calls_them(name: str) -> None:
    base, recorded, calls = algorithm(name), RECORDED["algorithms"][name], Counter[str]()
    names = set(recorded["methods"]) - set(base.not_called)
    found = hooks.phases(hooks.spied(base, names, calls), name, calls)
    for phase, called in recorded["called"].items():
        assert set(called) - set(base.not_called) - set(found[phase]) == set(), phase


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECORDED["parts"])
def test_methods_of_parts_are_called_as_by_the_peer(name: str) -> None:
    base, train = hooks.part_cases()[name]
    calls: Counter[str] = Counter()
    refused = {"_sanity_checks", "_save_obs", "_obs_from_buf", "get_attr"}
    called = set(RECORDED["parts"][name]) - refused
    train(hooks.spied(base, called, calls))
    assert called - set(calls) == set()


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name in RECORDED["algorithms"] for method in algorithm(name).not_called]
)
def test_what_is_never_called_is_refused(name: str, method: str) -> None:
    own = type("Own", (algorithm(name),), {method: lambda self, *args: None})
    policy, env, settings = hooks.ALGORITHMS[name]
    with pytest.raises(HyperparameterError, match=rf"its {method}\(\) would never be called: \w+"):
        own(policy, env, **settings)


def test_uncalled_methods_of_environments_and_buffers_are_refused() -> None:
    class Buffer(HerReplayBuffer):
        def _sample_goals(self, *args: Any) -> Any:
            return None

    class Vector(DummyVecEnv):
        def _save_obs(self, env_idx: int, obs: Any) -> None:
            pass

    class Normalised(VecNormalize):
        def _sanity_checks(self) -> None:
            pass

    with pytest.raises(HyperparameterError, match=r"replay_buffer_class=.*its _sample_goals\(\) would never be called"):
        DQN("MultiInputPolicy", BitFlippingEnv(4), replay_buffer_class=Buffer, **REPLAY)
    with pytest.raises(HyperparameterError, match=r"env=.*its _save_obs\(\) would never be called"):
        A2C("MlpPolicy", VecFrameStack(Vector([lambda: gym.make("CartPole-v1")]), 2), **SMALL)
    with pytest.raises(HyperparameterError, match=r"env=.*its _sanity_checks\(\) would never be called"):
        A2C("MlpPolicy", Normalised(make_vec_env("CartPole-v1")), **SMALL)


# -- an override changes what happens ----------------------------------------------------------------------------------


def rates(model: Any) -> set[float]:
    optimizers = model.learner.optimizers.values()
    return {round(float(group["lr"]), 8) for optimizer in optimizers for group in optimizer.param_groups}


@pytest.mark.parametrize(("base", "env", "many"), [(PPO, "CartPole-v1", False), (SAC, "Pendulum-v1", True)])
def test_an_own_learning_rate_reaches_the_optimizers(base: Any, env: str, many: bool) -> None:
    class Own(base):
        def _update_learning_rate(self, optimizers: Any) -> None:
            assert isinstance(optimizers, list) is many
            for optimizer in optimizers if many else [optimizers]:
                for group in optimizer.param_groups:
                    group["lr"] = 0.25

    class Frozen(base):
        def _update_learning_rate(self, optimizers: Any) -> None:
            pass

    class Halved(base):
        def _update_learning_rate(self, optimizers: Any) -> None:
            self.lr_schedule = lambda _: 5e-4
            super()._update_learning_rate(optimizers)

    options = REPLAY if base is SAC else {**SMALL, "n_steps": 16, "batch_size": 16}
    assert rates(Own("MlpPolicy", env, **options).learn(32)) == {0.25}
    falling = Frozen("MlpPolicy", env, learning_rate=lambda left: 1e-3 * left, **options).learn(32)
    assert rates(falling) == {1e-3}, "what the optimizers began with"
    halved = Halved("MlpPolicy", env, **options).learn(32)
    assert rates(halved) == {5e-4}


def test_an_own_wrapping_of_environments_is_used_wherever_one_is_given(tmp_path: Path) -> None:
    class Stacked(PPO):
        @staticmethod
        def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> Any:
            assert not isinstance(env, str)
            return VecFrameStack(PPO._wrap_env(env, verbose, monitor_wrapper), 2)

    model = Stacked("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL).learn(16)
    assert model.observation_space.shape == (8,)
    model.set_env(gym.make("CartPole-v1"))
    model.learn(16)
    assert isinstance(model.get_env(), VecFrameStack)
    model.save(tmp_path / "m")
    again = Stacked.load(tmp_path / "m", env="CartPole-v1")
    assert isinstance(again.get_env(), VecFrameStack)
    assert again.learn(16).get_env().observation_space.shape == (8,)


def test_an_own_callback_is_put_together_by_init_callback() -> None:
    seen: list[int] = []

    class Own(A2C):
        def _init_callback(self, callback: Any, progress_bar: bool = False) -> Any:
            assert callback is None
            return super()._init_callback(lambda names, _: seen.append(names["self"].num_timesteps) or True)

    Own("MlpPolicy", "CartPole-v1", n_steps=8, **SMALL).learn(8)
    assert seen == list(range(1, 9))


def test_an_own_train_freq_is_converted_and_used() -> None:
    class Own(TD3):
        def _convert_train_freq(self) -> None:
            self.train_freq = 5
            super()._convert_train_freq()

    model = Own("MlpPolicy", "Pendulum-v1", **REPLAY).learn(21)
    assert (model.train_freq.frequency, model._n_updates) == (5, 3), "after 15, 20 and 25 steps"


def test_own_aliases_are_made_when_the_policy_is_built(tmp_path: Path) -> None:
    class Own(DQN):
        def _create_aliases(self) -> None:
            super()._create_aliases()
            self.best = self.policy.q_net

    model = Own("MlpPolicy", "CartPole-v1", **REPLAY).learn(20)
    assert model.best is model.q_net
    model.save(tmp_path / "m")
    again = Own.load(tmp_path / "m")
    assert again.best is again.q_net


def test_an_own_seeding_is_called_for_the_model_and_its_environment() -> None:
    class Own(A2C):
        def set_random_seed(self, seed: int | None = None) -> None:
            super().set_random_seed(None if seed is None else seed + 1)

    def weights(cls: Any, seed: int) -> Any:
        return cls("MlpPolicy", "CartPole-v1", n_steps=8, seed=seed).policy.parameters_to_vector()

    assert np.array_equal(weights(Own, 0), weights(A2C, 1))
    assert not np.array_equal(weights(Own, 0), weights(A2C, 0))


def test_own_parameters_are_saved_and_loaded(tmp_path: Path) -> None:
    class Own(PPO):
        scale = 1.0

        def get_parameters(self) -> dict[str, Any]:
            return super().get_parameters() | {"scale": {"value": torch.tensor(self.scale), 3: [torch.ones(2), "a"]}}

        def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto") -> None:
            values = dict(load_path_or_dict)
            own = values.pop("scale")
            self.scale = float(own["value"])
            self.rest = own[3]
            super().set_parameters(values, exact_match, device)

    model = Own("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL).learn(16)
    model.scale = 7.0
    model.save(tmp_path / "m")
    again = Own.load(tmp_path / "m", env="CartPole-v1")
    assert (again.scale, Own.scale) == (7.0, 1.0)
    assert (again.rest[0].tolist(), again.rest[1]) == ([1.0, 1.0], "a")
    assert np.array_equal(again.policy.parameters_to_vector(), model.policy.parameters_to_vector())
    assert again.policy.optimizer.state_dict()["state"].keys() == model.policy.optimizer.state_dict()["state"].keys()
    assert np.array_equal(again.learn(16).policy.parameters_to_vector(), again.policy.parameters_to_vector())


def test_what_an_own_get_parameters_leaves_out_or_changes_is_so_in_the_file(tmp_path: Path) -> None:
    class Zeroed(SAC):
        def get_parameters(self) -> dict[str, Any]:
            values = super().get_parameters()
            values["policy"] = {name: torch.zeros_like(value) for name, value in values["policy"].items()}
            return values

    class Bare(SAC):
        def get_parameters(self) -> dict[str, Any]:
            return {name: value for name, value in super().get_parameters().items() if name == "policy"}

    class Lenient(Bare):
        def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto") -> None:
            super().set_parameters(load_path_or_dict, False, device)

    for cls in (Zeroed, Bare, Lenient):
        cls("MlpPolicy", "Pendulum-v1", **REPLAY).learn(20).save(tmp_path / cls.__name__)
    assert not Zeroed.load(tmp_path / "Zeroed").policy.parameters_to_vector().any()
    with pytest.raises(ValueError, match="exact_match=True needs every part of the model"):
        Bare.load(tmp_path / "Bare")
    again = Lenient.load(tmp_path / "Lenient")
    assert again.policy.parameters_to_vector().any()
    assert not again.actor.optimizer.state_dict()["state"]
    with pytest.raises(ValueError, match="exact_match"):
        SAC("MlpPolicy", "Pendulum-v1", **REPLAY).set_parameters(tmp_path / "Lenient")


def test_an_actors_own_training_mode_is_switched() -> None:
    from polyak.compat.sb3.sac.policies import Actor, SACPolicy

    modes: list[bool] = []

    class Own(Actor):
        def set_training_mode(self, mode: bool) -> None:
            modes.append(mode)
            super().set_training_mode(mode)

    class Policy(SACPolicy):
        def make_actor(self, features_extractor: Any = None) -> Any:
            return Own(**self._update_features_extractor(self.actor_kwargs, features_extractor)).to(self.device)

    SAC(Policy, "Pendulum-v1", **REPLAY).learn(14)
    assert modes[-2:] in ([True, False], [False, True])


def test_an_own_predict_of_a_policy_explores() -> None:
    from polyak.compat.sb3.td3.policies import TD3Policy

    class Policy(TD3Policy):
        def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
            return np.full((len(observation), 1), 1.0, np.float32), None

    model = TD3(Policy, "Pendulum-v1", **REPLAY).learn(20)
    assert np.allclose(model.replay_buffer.actions[10:20], 0.5), "as the network has them"


def test_what_an_own_normaliser_says_was_there_before_is_stored_and_replayed() -> None:
    class Own(VecNormalize):
        def get_original_obs(self) -> Any:
            return super().get_original_obs() + 100

        def get_original_reward(self) -> Any:
            return np.full(self.num_envs, 7.0, np.float32)

        def unnormalize_obs(self, obs: Any) -> Any:
            return np.full_like(obs, -5.0)

        def normalize_obs(self, obs: Any) -> Any:
            return np.full(np.shape(obs), 0.25, np.float32)

        def normalize_reward(self, reward: Any) -> Any:
            return np.full(np.shape(reward), 0.75, np.float32)

    model = SAC("MlpPolicy", Own(hooks.environments("Pendulum-v1")), **REPLAY).learn(20)
    stored = model.replay_buffer
    assert (stored.observations[:20] > 90).all()
    assert (stored.rewards[:20] == 7.0).all()
    ended = np.arange(20) % 10 == 9
    assert (stored.next_observations[:20][ended] == -5.0).all()
    assert (stored.next_observations[:20][~ended] > 90).all()
    batch = stored.sample(4, env=model.get_vec_normalize_env())
    assert (batch.observations == 0.25).all()
    assert (batch.rewards == 0.75).all()


def test_an_own_step_of_a_normaliser_need_not_keep_terminal_observations() -> None:
    class Own(VecNormalize):
        def step_wait(self) -> Any:
            obs, rewards, dones, infos = self.venv.step_wait()
            self.old_obs, self.old_reward = obs, rewards
            self.obs_rms.update(obs)
            for i in np.flatnonzero(dones):
                infos[i]["terminal_observation"] = self.normalize_obs(infos[i]["terminal_observation"])
            return self.normalize_obs(obs), rewards, dones, infos

    model = SAC("MlpPolicy", Own(hooks.environments("Pendulum-v1"), clip_obs=1e6), **REPLAY).learn(20)
    stored = model.replay_buffer
    cosine, sine = stored.next_observations[9, 0, :2]
    assert cosine**2 + sine**2 == pytest.approx(1, abs=1e-4), "as the pendulum has it"


def test_an_own_normaliser_normalises_in_copies_too(tmp_path: Path) -> None:
    from polyak.envs.wrappers.layers import frozen
    from polyak.envs.wrappers.normalize import normalized_like

    class Own(VecNormalize):
        def normalize_obs(self, obs: Any) -> Any:
            return np.full_like(obs, 0.25)

    env = Own(make_vec_env("CartPole-v1", 2))
    model = A2C("MlpPolicy", env, n_steps=8, **SMALL)
    alike = normalized_like(make_vec_env("CartPole-v1"), env)
    assert (alike.reset() == 0.25).all()
    assert (frozen(env).normalize_obs(np.zeros((1, 4))) == 0.25).all()
    assert (model.normalisation.frozen().normalize_obs(np.zeros((1, 4))) == 0.25).all()
    with pytest.raises(ValueError, match="Own normalises observations by code of its own"):
        model.export(tmp_path / "m.pt2")
    env.save(tmp_path / "statistics.npz")
    assert (Own.load(tmp_path / "statistics.npz", make_vec_env("CartPole-v1")).reset() == 0.25).all()
    with pytest.warns(UserWarning, match=r"load it with env=Own\(\.\.\.\)"):
        model.save(tmp_path / "m")


def test_an_own_normalisation_of_a_part_is_used() -> None:
    class Own(VecNormalize):
        def _normalize_obs(self, obs: Any, obs_rms: Any) -> Any:
            return np.full_like(obs, 0.5)

    model = A2C("MlpPolicy", Own(make_vec_env("CartPole-v1")), n_steps=8, **SMALL).learn(8)
    assert (model.rollout_buffer.observations == 0.5).all()
