"""MaskablePPO: nothing forbidden is done, and what programs write around it takes effect."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak.callbacks.callback import BaseCallback
from polyak.compat.sb3_face import algorithms as compat
from polyak.compat.sb3_face.maskable.buffers import MaskableRolloutBuffer
from polyak.compat.sb3_face.maskable.distributions import (
    MaskableCategoricalDistribution,
    NoParametersError,
    make_masked_proba_distribution,
)
from polyak.compat.sb3_face.maskable.evaluation import MaskableEvalCallback, evaluate_policy
from polyak.compat.sb3_face.maskable.policies import MaskableActorCriticPolicy
from polyak.envs import (
    ActionMasker,
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
)
from polyak.experience import RolloutBuffer

STRICT: dict[str, Any] = {
    "one": lambda **more: InvalidActionEnvDiscrete(6, 10, 3, strict=True, **more),
    "several": lambda **more: InvalidActionEnvMultiDiscrete([3, 2, 4], 10, 5, strict=True, **more),
    "coins": lambda **more: InvalidActionEnvMultiBinary(4, 10, 3, strict=True, **more),
}
SMALL: dict[str, Any] = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "device": "cpu", "seed": 0}


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        *((polyak.MaskablePPO, name) for name in STRICT),
        (compat.MaskablePPO, "several"),
        *(pytest.param(compat.MaskablePPO, name, marks=pytest.mark.slow) for name in ("one", "coins")),
    ],
)
def test_nothing_forbidden_is_done(cls: type[polyak.MaskablePPO], name: str, tmp_path: Path) -> None:
    env = STRICT[name]()
    model = cls("MlpPolicy", env, **SMALL).learn(640)
    for deterministic in (True, False):
        evaluate_policy(model, env, 5, deterministic=deterministic, warn=False)
    with pytest.raises(ValueError, match="is forbidden"):
        evaluate_policy(model, env, 50, deterministic=False, warn=False, use_masking=False)
    model.save(tmp_path / "m")
    cls.load(tmp_path / "m", env=env, device="cpu").learn(200)


@pytest.mark.parametrize("name", ["one", "several"])
def test_it_is_ppo(name: str) -> None:
    ours, theirs, ppo = (
        cls("MlpPolicy", STRICT[name](), **SMALL).learn(256).policy.state_dict()
        for cls in (polyak.MaskablePPO, compat.MaskablePPO, polyak.PPO)
    )
    torch.testing.assert_close(ours, ppo, rtol=0, atol=0)
    torch.testing.assert_close(dict(theirs), dict(ppo), rtol=0, atol=0)


@pytest.mark.parametrize("cls", [polyak.MaskablePPO, compat.MaskablePPO])
def test_masks_are_needed(cls: type[polyak.MaskablePPO]) -> None:
    model = cls("MlpPolicy", "CartPole-v1", **SMALL)
    with pytest.raises(ValueError, match=r"MaskablePPO needs masks.*ActionMasker"):
        model.learn(64)
    with pytest.raises(ValueError, match="does not support the action space Box"):
        cls("MlpPolicy", "Pendulum-v1", **SMALL)


def test_masks_may_be_left_out_and_come_back() -> None:
    env = STRICT["one"]()
    model = compat.MaskablePPO("MlpPolicy", env, **SMALL)
    with pytest.raises(ValueError, match="is forbidden"):
        model.learn(500, use_masking=False)
    model.learn(500)
    assert model.rollout_buffer.action_masks.sum() == 64 * 3
    assert compat.MaskablePPO("MlpPolicy", "CartPole-v1", **SMALL).learn(64, use_masking=False).num_timesteps == 64


def test_what_the_info_says_is_kept_to() -> None:
    class Told(gym.Wrapper):
        def reset(self, **kwargs: Any) -> Any:
            observation, info = self.env.reset(**kwargs)
            return observation, {**info, "action_mask": self.env.action_masks()}

        def step(self, action: Any) -> Any:
            observation, *rest, info = self.env.step(action)
            return observation, *rest, {**info, "action_mask": self.env.action_masks()}

        def has_wrapper_attr(self, name: str) -> bool:
            return name != "action_masks" and super().has_wrapper_attr(name)

        def get_wrapper_attr(self, name: str) -> Any:
            if name == "action_masks":
                raise AttributeError(name)
            return super().get_wrapper_attr(name)

    model = compat.MaskablePPO("MlpPolicy", Told(STRICT["several"]()), **SMALL).learn(256)
    assert model.rollout_buffer.action_masks.sum() == 64 * (9 - 5)


def test_policies_and_buffers_must_know_of_masks() -> None:
    with pytest.raises(ValueError, match=r"takes no masks\. Extend MaskableActorCriticPolicy"):
        compat.MaskablePPO(compat.policies.ActorCriticPolicy, STRICT["one"](), **SMALL)
    with pytest.raises(TypeError, match="RolloutBuffer does not store masks"):
        compat.MaskablePPO("MlpPolicy", STRICT["one"](), rollout_buffer_class=RolloutBuffer, **SMALL).learn(64)
    with pytest.raises(ValueError, match="Discrete, MultiDiscrete and MultiBinary"):
        MaskableRolloutBuffer(8, spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'use_sde'"):
        MaskableActorCriticPolicy(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), lambda _: 1e-3, use_sde=True)


def test_rollouts_are_quick_unless_a_program_changes_them() -> None:
    class Mine(MaskableRolloutBuffer):
        def add(self, *args: Any, **kwargs: Any) -> None:
            super().add(*args, **kwargs)

    models = [
        compat.MaskablePPO("MlpPolicy", STRICT["coins"](), rollout_buffer_class=kind, **SMALL).learn(256)
        for kind in (None, Mine)
    ]
    quick, slow = (model.rollout_buffer for model in models)
    assert (quick.values_may_follow, slow.values_may_follow) == (True, False)
    assert (quick.resumable, slow.resumable) == (True, False)
    np.testing.assert_array_equal(quick.actions, slow.actions)
    np.testing.assert_allclose(quick.returns, slow.returns, rtol=1e-5, atol=1e-5)
    assert models[0].runner.actor._decide.reason is None, "actions come without torch"


def test_training_resumed_in_the_middle_of_a_rollout_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    class Saves(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 100:
                self.model.save(tmp_path / "half")
                self.env = copy.deepcopy(self.model.env)
            return True

    env, saves = ActionMasker(gym.make("CartPole-v1"), one_side_when_fast), Saves()
    whole = compat.MaskablePPO("MlpPolicy", env, **SMALL).learn(256, saves)
    resumed = compat.MaskablePPO.load(tmp_path / "half", saves.env, "cpu", resume=True, force_reset=False)
    resumed.learn(156, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    np.testing.assert_array_equal(resumed.rollout_buffer.action_masks, whole.rollout_buffer.action_masks)
    assert 0 < whole.rollout_buffer.action_masks.mean() < 1
    torch.testing.assert_close(dict(whole.policy.state_dict()), dict(resumed.policy.state_dict()), rtol=0, atol=0)


def one_side_when_fast(env: gym.Env) -> np.ndarray:
    return np.array([env.unwrapped.state[3] > -0.3, True])


def test_a_callback_evaluates_under_masks(tmp_path: Path) -> None:
    callback = MaskableEvalCallback(STRICT["one"](), eval_freq=64, n_eval_episodes=3, verbose=0, log_path=tmp_path)
    compat.MaskablePPO("MlpPolicy", STRICT["one"](), **SMALL).learn(128, callback)
    assert len(callback.evaluations_results) == 2
    blind = MaskableEvalCallback(STRICT["one"](), eval_freq=64, n_eval_episodes=30, verbose=0, use_masking=False)
    with pytest.raises(ValueError, match="is forbidden"):
        compat.MaskablePPO("MlpPolicy", STRICT["one"](), **SMALL).learn(128, blind)
    unmasked = MaskableEvalCallback(gym.make("CartPole-v1"), eval_freq=64, verbose=0)
    with pytest.raises(ValueError, match=r"use_masking=True needs .* action_masks\(\)"):
        compat.MaskablePPO("MlpPolicy", "CartPole-v1", **SMALL).learn(128, unmasked, use_masking=False)


# -- distributions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3])], ids=str)
def test_a_distribution_without_parameters_says_so(space: spaces.Space) -> None:
    dist = make_masked_proba_distribution(space)
    for ask in (
        dist.sample,
        dist.mode,
        dist.entropy,
        lambda: dist.log_prob(torch.zeros(1)),
        lambda: dist.apply_masking(None),
    ):
        with pytest.raises(NoParametersError, match="no parameters yet"):
            ask()
    with pytest.raises(NotImplementedError, match="no masks for Box"):
        make_masked_proba_distribution(spaces.Box(-1, 1, (2,)))


def test_a_subclass_of_a_distribution_samples_its_own_way() -> None:
    class Last(MaskableCategoricalDistribution):
        def sample(self) -> torch.Tensor:
            return super().sample() * 0 + self.action_dim - 1

    class Mine(MaskableActorCriticPolicy):
        def _build(self, lr_schedule: Any) -> None:
            self.action_dist = Last(2)
            super()._build(lr_schedule)

    env = ActionMasker(gym.make("CartPole-v1"), lambda env: [True, True])
    model = compat.MaskablePPO(Mine, env, **SMALL).learn(64)
    assert (model.rollout_buffer.actions == 1).all()


def test_networks_of_contrib_s_other_algorithms_have_its_methods() -> None:
    model = compat.CrossQ("MlpPolicy", "Pendulum-v1", device="cpu", buffer_size=10)
    model.critic.set_bn_training_mode(False)
    modes = {type(module).__name__: module.training for module in model.critic.modules()}
    assert not modes["BatchRenorm1d"]
    assert modes["Linear"]
    trpo = compat.TRPO("MlpPolicy", "CartPole-v1", device="cpu", cg_damping=0.5)
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    (slope,) = torch.autograd.grad((w**2).sum() / 2 + w.prod(), w, create_graph=True)
    assert trpo.hessian_vector_product([w], slope, torch.tensor([1.0, 0.0])).tolist() == [1.5, 1.0]
