"""Algorithms of a user's own, with constructors and set-ups of their own, are saved, loaded and resumed."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

import polyak
from polyak.compat.sb3 import PPO, SAC
from polyak.compat.sb3.common.base_class import BaseAlgorithm
from polyak.compat.sb3.common.buffers import RolloutBuffer
from polyak.compat.sb3.common.env_util import make_vec_env
from polyak.compat.sb3.common.off_policy_algorithm import OffPolicyAlgorithm
from polyak.compat.sb3.common.on_policy_algorithm import OnPolicyAlgorithm
from polyak.compat.sb3.common.policies import ActorCriticPolicy
from polyak.compat.sb3.common.save_util import load_from_zip_file
from polyak.compat.sb3.common.utils import FloatSchedule
from polyak.compat.sb3.sac.policies import SACPolicy

SMALL: dict[str, Any] = {"net_arch": [8]}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Nothing here needs trust, and nothing is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


class Soft(OffPolicyAlgorithm):
    """Soft actor-critic as a peer's package would write it: target entropy by name, a temperature of its own."""

    policy_aliases = {"MlpPolicy": SACPolicy}

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: float = 1e-3,
        target_entropy: str | float = "auto",
        policy_kwargs: dict[str, Any] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        use_sde: bool = False,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
    ):
        super().__init__(
            *(policy, env, learning_rate, 200, 10, 8),
            replay_buffer_kwargs=replay_buffer_kwargs,
            policy_kwargs=policy_kwargs,
            use_sde=use_sde,
            seed=seed,
            device=device,
            supported_action_spaces=(spaces.Box,),
        )
        self.target_entropy = target_entropy
        self._n_calls = 0
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self.actor, self.critic = self.policy.actor, self.policy.critic
        self.learned = list(self.actor.parameters())
        if self.target_entropy == "auto":
            self.target_entropy = -float(np.prod(self.env.action_space.shape))
        self.log_temperature = torch.zeros(1, device=self.device, requires_grad=True)
        self.temperature_optimizer = torch.optim.Adam([self.log_temperature], lr=self.lr_schedule(1))

    def train(self, gradient_steps: int, batch_size: int = 8) -> None:
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer, self.temperature_optimizer])
        for _ in range(gradient_steps):
            self._n_calls += 1
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            q = torch.cat(self.critic(batch.observations, batch.actions), dim=1)
            critic_loss = F.mse_loss(q, batch.rewards.expand_as(q))
            actions, log_prob = self.actor.action_log_prob(batch.observations)
            temperature = self.log_temperature.exp()
            values = torch.cat(self.critic(batch.observations, actions), dim=1).min(dim=1).values
            actor_loss = (temperature.detach() * log_prob - values).mean()
            temperature_loss = -(self.log_temperature * (log_prob + self.target_entropy).detach()).mean()
            for optimizer, loss in (
                (self.critic.optimizer, critic_loss),
                (self.actor.optimizer, actor_loss),
                (self.temperature_optimizer, temperature_loss),
            ):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self._n_updates += gradient_steps

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "actor.optimizer", "critic.optimizer", "temperature_optimizer"], ["log_temperature"]

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actor", "critic", "log_temperature"]


class Forgetful(Soft):
    """As :class:`Soft`, but nothing says which of its attributes are networks, optimizers and tensors."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.judge = nn.Linear(3, 1).to(self.device)

    _get_torch_save_params = OffPolicyAlgorithm._get_torch_save_params
    _excluded_save_params = OffPolicyAlgorithm._excluded_save_params


class Direct(OnPolicyAlgorithm):
    """REINFORCE whose ``_setup_model`` makes policy and buffer by itself."""

    policy_aliases = {"MlpPolicy": ActorCriticPolicy}

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: float = 1e-3,
        n_steps: int = 16,
        clip_range: float = 0.2,
        stats_window_size: int = 100,
        policy_kwargs: dict[str, Any] | None = None,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
    ):
        super().__init__(
            *(policy, env, learning_rate, n_steps, 0.99, 1.0, 0.0, 0.5, 0.5, False, -1),
            stats_window_size=stats_window_size,
            policy_kwargs=policy_kwargs,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.clip_range = clip_range
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        self.policy = self.policy_class(
            self.observation_space, self.action_space, self.lr_schedule, use_sde=self.use_sde, **self.policy_kwargs
        )
        self.policy = self.policy.to(self.device)
        self.rollout_buffer = (self.rollout_buffer_class or RolloutBuffer)(
            self.n_steps,
            self.observation_space,
            self.action_space,
            self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **self.rollout_buffer_kwargs,
        )
        self.clip_range = FloatSchedule(self.clip_range)

    def train(self) -> None:
        for data in self.rollout_buffer.get(None):
            values, log_prob, _ = self.policy.evaluate_actions(data.observations, data.actions.long().flatten())
            loss = F.mse_loss(values.flatten(), data.returns) - (data.advantages * log_prob).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()
        self._n_updates += 1


class Search(BaseAlgorithm):
    """Random search: no optimizer, a vector of its own, a loop of its own."""

    policy_aliases = {"MlpPolicy": ActorCriticPolicy}

    def __init__(self, policy: Any, env: Any, width: float = 0.1, device: str = "cpu", _init_setup_model: bool = True):
        super().__init__(policy, env, 0.0, support_multi_env=True, device=device)
        self.width = width
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        self.policy = self.policy_class(self.observation_space, self.action_space, lambda _: 0.0).to(self.device)
        self.weights = torch.nn.utils.parameters_to_vector(self.policy.parameters()).detach()

    def learn(self, total_timesteps: int, **kwargs: Any) -> Any:  # type: ignore[override]
        self.weights += self.width * torch.randn_like(self.weights)
        torch.nn.utils.vector_to_parameters(self.weights.clone(), self.policy.parameters())
        self.num_timesteps += total_timesteps
        return self

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy"], ["weights"]


def same(one: Any, other: Any) -> None:
    """Two trees of state dicts are equal."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list):
        for first, second in zip(one, other, strict=True):
            same(first, second)
    else:
        assert one == other


MODELS = {
    "soft": lambda: Soft("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL), seed=1),
    "soft_sde": lambda: Soft("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL), use_sde=True),
    "forgetful": lambda: Forgetful("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL)),
    "direct": lambda: Direct("MlpPolicy", "CartPole-v1", clip_range=0.3, stats_window_size=7, policy_kwargs=SMALL),
    "search": lambda: Search("MlpPolicy", "CartPole-v1"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_trained_is_saved_and_loaded_with_and_without_an_environment(name: str, tmp_path: Path) -> None:
    model = MODELS[name]().learn(40)
    model.save(tmp_path / "m.zip")
    observations = np.stack([model.observation_space.sample() for _ in range(8)]).clip(-3, 3)
    for env in (None, model.get_env()):
        again = type(model).load(tmp_path / "m.zip", env=env)
        same(model.get_parameters(), again.get_parameters())
        for one, other in zip(
            model.predict(observations, deterministic=True),
            again.predict(observations, deterministic=True),
            strict=True,
        ):
            assert np.array_equal(one, other)
        assert again.num_timesteps == model.num_timesteps
    with warnings.catch_warnings():  # the file has no replay buffer
        warnings.filterwarnings("ignore", "the model has made .* steps, but its replay buffer is empty")
        again.learn(40, reset_num_timesteps=False)
    assert again.num_timesteps >= model.num_timesteps + 40
    again.save(tmp_path / "n.zip")


def test_what_a_class_calls_its_own_comes_back(tmp_path: Path) -> None:
    soft = MODELS["soft"]().learn(40)
    assert set(soft.get_parameters()) == {"policy", "actor.optimizer", "critic.optimizer", "temperature_optimizer"}
    soft.save(tmp_path / "m.zip")
    again = Soft.load(tmp_path / "m.zip")
    assert (again.target_entropy, again._n_calls) == (-1.0, soft._n_calls)
    assert soft._n_calls > 0
    assert torch.equal(again.log_temperature, soft.log_temperature)
    assert again.log_temperature.item() != 0
    assert again.temperature_optimizer.param_groups[0]["params"][0] is again.log_temperature
    assert again.actor is again.policy.actor

    direct = MODELS["direct"]()
    direct.save(tmp_path / "m.zip")
    again = Direct.load(tmp_path / "m.zip")
    assert (again.clip_range(0.5), again.stats_window_size, again.ep_info_buffer.maxlen) == (0.3, 7, 7)

    with pytest.raises(AssertionError, match="does not support the action space"):
        Soft("MlpPolicy", "CartPole-v1")
    with pytest.raises(ValueError, match="2 environments"):
        Soft("MlpPolicy", make_vec_env("Pendulum-v1", 2))
    with pytest.raises(TypeError, match=r"argument 'bufer_size'\. Did you mean 'buffer_size'"):
        OffPolicyAlgorithm("MlpPolicy", "Pendulum-v1", 1e-3, bufer_size=9)

    search = MODELS["search"]().learn(1)
    search.save(tmp_path / "m.zip")
    assert torch.equal(Search.load(tmp_path / "m.zip").weights, search.weights)


def test_networks_and_tensors_that_nobody_named_are_saved_too(tmp_path: Path) -> None:
    model = MODELS["forgetful"]().learn(40)
    model.save(tmp_path / "m.zip")
    again = Forgetful.load(tmp_path / "m.zip")
    assert torch.equal(again.judge.weight, model.judge.weight)
    assert torch.equal(again.log_temperature, model.log_temperature)
    same(again.temperature_optimizer.state_dict(), model.temperature_optimizer.state_dict())


def test_parameters_are_set_from_files_and_dicts(tmp_path: Path) -> None:
    model, other = MODELS["soft"]().learn(40), MODELS["soft"]()
    model.save(tmp_path / "m.zip")
    other.set_parameters(tmp_path / "m.zip")
    same(other.get_parameters(), model.get_parameters())
    assert torch.equal(other.log_temperature, model.log_temperature)
    values = MODELS["soft"]().get_parameters()
    other.set_parameters(values)
    same(other.get_parameters(), values)
    del values["temperature_optimizer"]
    with pytest.raises(ValueError, match=r"exact_match=True needs every part.*temperature_optimizer"):
        other.set_parameters(values)
    other.set_parameters({"policy": model.policy.state_dict()}, exact_match=False)
    same(other.policy.state_dict(), model.policy.state_dict())
    with pytest.raises(ValueError, match="'nothing' is not a part"):
        other.set_parameters({"nothing": {}}, exact_match=False)


def test_training_goes_on_with_the_replay_buffer_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    def run(stops: bool) -> Any:
        model = MODELS["soft"]()
        model.learn(60)
        if stops:
            model.save(tmp_path / "m.zip", include=["replay_buffer"])
            model = Soft.load(tmp_path / "m.zip", env="Pendulum-v1", resume=True)
        model.replay_buffer.add(*(np.zeros((1, n), np.float32) for n in (3, 3, 1)), np.zeros(1), np.zeros(1), [{}])
        model._logger = polyak.logging.logger.configure(None, [])
        model.train(5, 8)
        return model.get_parameters()

    same(run(stops=False), run(stops=True))
    model = MODELS["soft"]().learn(30)
    model.save_replay_buffer(tmp_path / "replay")
    other = MODELS["soft"]()
    other.load_replay_buffer(tmp_path / "replay")
    assert np.array_equal(other.replay_buffer.observations, model.replay_buffer.observations)


def test_arguments_of_load(tmp_path: Path) -> None:
    MODELS["soft"]().save(tmp_path / "m.zip")
    assert Soft.load(tmp_path / "m.zip", learning_rate=0.5).lr_schedule(1) == 0.5
    assert Soft.load(tmp_path / "m.zip", custom_objects={"target_entropy": -3.0}).target_entropy == -3.0
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rat'"):
        Soft.load(tmp_path / "m.zip", learning_rat=0.5)
    with pytest.raises(ValueError, match="gamma=2"):
        Soft.load(tmp_path / "m.zip", gamma=2)


def test_constructors_that_ask_for_more(tmp_path: Path) -> None:
    class Fixed(PPO):
        """Its constructor names few arguments and fixes others."""

        def __init__(self, policy: Any, env: Any, flavour: str, **kwargs: Any) -> None:
            super().__init__(policy, env, n_steps=16, batch_size=16, policy_kwargs=dict(SMALL), **kwargs)
            self.flavour = flavour

    Fixed("MlpPolicy", "CartPole-v1", "sweet").learn(16).save(tmp_path / "m.zip")
    assert (again := Fixed.load(tmp_path / "m.zip", env="CartPole-v1")).flavour == "sweet"
    assert again.learn(16).n_steps == 16
    assert polyak.PPO.load(tmp_path / "m.zip").n_steps == PPO.load(tmp_path / "m.zip").n_steps == 16

    class Unkept(PPO):
        """It does not keep what it must have."""

        def __init__(self, policy: Any, env: Any, flavour: str, **kwargs: Any) -> None:
            super().__init__(policy, env, n_steps=16, batch_size=16, **kwargs)

    Unkept("MlpPolicy", "CartPole-v1", "sweet").save(tmp_path / "m.zip")
    with pytest.raises(ValueError, match=r"needs 'flavour', which the file does not have.*as an attribute"):
        Unkept.load(tmp_path / "m.zip")


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    model = MODELS["soft"]()
    model.stream = sys.stdout
    with pytest.raises(ValueError, match=r"stream=.*cannot be saved.*exclude=\['stream'\]"):
        model.save(tmp_path / "m.zip")
    model.save(tmp_path / "m.zip", exclude=["stream"])
    assert not hasattr(Soft.load(tmp_path / "m.zip"), "stream")


def test_a_file_of_ours_is_read_by_the_function_for_zips(tmp_path: Path) -> None:
    model = MODELS["soft"]().learn(40)
    model.save(tmp_path / "m.zip")
    data, params, variables = load_from_zip_file(tmp_path / "m.zip", custom_objects={"gamma": 0.5})
    assert data is not None
    assert (data["target_entropy"], data["learning_rate"], data["num_timesteps"]) == (-1.0, 1e-3, model.num_timesteps)
    assert data["gamma"] == 0.5
    assert data["observation_space"] == model.observation_space
    same(params, model.get_parameters())
    assert variables is not None
    assert torch.equal(variables["log_temperature"], model.log_temperature)
    assert load_from_zip_file(tmp_path / "m.zip", load_data=False)[0] is None


def test_a_zip_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.zip", a=np.zeros(3))
    with pytest.raises(ValueError, match="holds no model"):
        load_from_zip_file(tmp_path / "x.zip.npz")


def test_the_example_loads_what_it_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parts are of all kinds: networks, an optimizer, a tensor."""
    path = Path(__file__).parents[2] / "examples" / "from_sb3" / "own_algorithm.py"
    source = path.read_text().replace("stable_baselines3", "polyak.compat.sb3")
    (tmp_path / "own_algorithm.py").write_text(source)
    spec = importlib.util.spec_from_file_location("own_algorithm", tmp_path / "own_algorithm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Curious("MlpPolicy", "CartPole-v1", policy_kwargs=SMALL, seed=0).learn(100)
    model.save(tmp_path / "m")
    again = module.Curious.load(tmp_path / "m")
    same(again.get_parameters(), model.get_parameters())
    assert {"goal", "guess", "guess_optimizer"} <= again.get_parameters().keys()
    assert torch.equal(again.usual_surprise, model.usual_surprise)


def test_buffer_arguments_may_be_unpacked() -> None:
    for model in (MODELS["direct"](), PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16)):
        assert model.rollout_buffer_kwargs == {}
    for model in (MODELS["soft"](), SAC("MlpPolicy", "Pendulum-v1", buffer_size=100)):
        assert model.replay_buffer_kwargs == {}


def test_a_policy_wrapped_by_torch_compile_is_saved_as_what_it_wraps(tmp_path: Path) -> None:
    for model in (SAC("MlpPolicy", "Pendulum-v1", buffer_size=100, policy_kwargs=SMALL), MODELS["direct"]()):
        model.policy = torch.compile(model.policy)
        model.save(tmp_path / "m.zip")
        again = type(model).load(tmp_path / "m.zip")
        same(again.policy.state_dict(), model.policy._orig_mod.state_dict())
