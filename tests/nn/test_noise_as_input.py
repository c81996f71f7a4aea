"""Policies as pure functions: the random numbers of a step are an input, drawn as the policies would draw them."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.masks import mask_size
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Policy, chosen
from polyak.nn.policies.categorical import CategoricalPolicy
from polyak.nn.policies.cloning import CloningPolicy
from polyak.nn.policies.constrained import ConstrainedPolicy
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.nn.policies.crossq import CrossQActor, CrossQCritic
from polyak.nn.policies.decision_transformer import DecisionTransformerPolicy
from polyak.nn.policies.game import GamePolicy
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.nn.policies.value import CategoricalQNetwork, GreedyPolicy, ImplicitQuantileNetwork, QuantileNetwork
from tests.nn.policy_cases import ACTIONS, DICT, IMAGE, VECTOR, make_observations

BOX, CHOICE = ACTIONS["box"], ACTIONS["discrete"]
PARTS = spaces.Dict({"a": CHOICE, "b": BOX, "c": ACTIONS["multi_binary"], "d": ACTIONS["multi_discrete"]})
SMALL: dict[str, Any] = {"net_arch": [8, 8]}
NOISY: dict[str, Any] = {**SMALL, "sigma0": 0.5, "dueling": True}
LSTM: dict[str, Any] = {"memory": "lstm", "memory_size": 6}

SAMPLING: dict[str, tuple[Any, spaces.Space, spaces.Space, dict[str, Any]]] = {
    **{f"PPO {name}": (ActorCriticPolicy, VECTOR, space, SMALL) for name, space in ACTIONS.items()},
    "PPO parts": (ActorCriticPolicy, VECTOR, PARTS, SMALL),
    "PPO image": (ActorCriticPolicy, IMAGE, CHOICE, {}),
    "PPO Dict": (ActorCriticPolicy, DICT, CHOICE, SMALL),
    "PPO sparse": (ActorCriticPolicy, VECTOR, CHOICE, {**SMALL, "sparse": True}),
    "PPO gSDE": (ActorCriticPolicy, VECTOR, BOX, {**SMALL, "use_sde": True}),
    "PPO LSTM": (RecurrentActorCriticPolicy, VECTOR, CHOICE, {**SMALL, **LSTM}),
    "PPO GRU": (RecurrentActorCriticPolicy, VECTOR, BOX, {**SMALL, **LSTM, "memory": "gru"}),
    "SAC": (ContinuousPolicy, VECTOR, BOX, SMALL),
    "SAC Dict": (ContinuousPolicy, DICT, BOX, SMALL),
    "SAC gSDE": (ContinuousPolicy, VECTOR, BOX, {**SMALL, "use_sde": True}),
    "SAC LSTM": (ContinuousPolicy, VECTOR, BOX, {**SMALL, **LSTM}),
    "CrossQ": (ContinuousPolicy, VECTOR, BOX, {**SMALL, "actor": CrossQActor, "critic": CrossQCritic}),
    "discrete SAC": (CategoricalPolicy, VECTOR, CHOICE, SMALL),
    "BC": (CloningPolicy, VECTOR, BOX, {**SMALL, "stochastic": True}),
    "BC choices": (CloningPolicy, VECTOR, ACTIONS["multi_discrete"], SMALL),
    "BC LSTM": (CloningPolicy, VECTOR, CHOICE, {**SMALL, **LSTM}),
    "noisy DQN": (GreedyPolicy, VECTOR, CHOICE, NOISY),
    "noisy C51": (GreedyPolicy, VECTOR, CHOICE, {**NOISY, "network": CategoricalQNetwork, "n_atoms": 5}),
    "noisy QR-DQN": (GreedyPolicy, VECTOR, CHOICE, {**NOISY, "network": QuantileNetwork, "n_quantiles": 5}),
    "noisy IQN": (GreedyPolicy, VECTOR, CHOICE, {**NOISY, "network": ImplicitQuantileNetwork, "n_samples": 4}),
    "IQN": (GreedyPolicy, VECTOR, CHOICE, {**SMALL, "network": ImplicitQuantileNetwork}),
    "noisy BCQ": (ConstrainedPolicy, VECTOR, CHOICE, NOISY),
    "noisy R2D2": (GreedyPolicy, VECTOR, CHOICE, {**NOISY, **LSTM}),
    "game": (GamePolicy, VECTOR, CHOICE, SMALL),
    "transformer": (DecisionTransformerPolicy, VECTOR, CHOICE, {"width": 8, "n_layers": 1, "context_length": 3}),
}


def made(name: str, batch: int) -> tuple[Policy, Any, Any]:
    """A policy, B observations, and the recurrent state before them."""
    kind, observation_space, action_space, options = SAMPLING[name]
    torch.manual_seed(1)
    policy = kind(observation_space, action_space, **options)
    policy.set_training_mode(False)
    if "gSDE" in name:
        policy.reset_noise(batch)
    obs = policy.obs_to_tensor(make_observations(observation_space, batch))[0]
    state = policy.initial_memory(batch) or policy.acting_memory(batch)
    return policy, obs, state


def masks_of(policy: Policy, batch: int) -> list[Tensor | None]:
    """None, and masks where the policy supports them: of each choice, the last class but one is forbidden."""
    size = mask_size(policy.action_space)
    if size is None or not policy.supports_masks:
        return [None]
    masks = torch.ones(batch, size, dtype=torch.bool)
    masks[:, 1] = False
    return [None, masks]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", SAMPLING)
@torch.no_grad()
def test_noise_drawn_beforehand_is_the_noise_that_a_policy_draws(name: str, batch: int) -> None:
    policy, obs, state = made(name, batch)
    assert policy.draw_noise(batch)
    for masks in masks_of(policy, batch):
        for seed in range(3):
            torch.manual_seed(seed)
            noise = policy.draw_noise(batch)
            before = torch.get_rng_state()
            given = policy.decide(obs, noise, state, masks)
            assert torch.equal(torch.get_rng_state(), before), "a pure function draws nothing"
            again = policy.decide(obs, noise, state, masks)
            assert torch.equal(given.actions, again.actions)
            if isinstance(policy, GamePolicy):  # which always takes its noise from outside
                continue
            torch.manual_seed(seed)
            own = policy.decide(obs, {}, state, masks)
            assert torch.equal(torch.get_rng_state(), before), "not as many numbers"
            assert torch.equal(given.actions, own.actions)
            assert given.extras.keys() == own.extras.keys()
            for key, value in own.extras.items():
                torch.testing.assert_close(given.extras[key], value, rtol=0, atol=0)
            for key, value in (own.state or {}).items():
                torch.testing.assert_close((given.state or {})[key], value, rtol=0, atol=0)


@pytest.mark.parametrize("name", SAMPLING)
@torch.no_grad()
def test_without_noise_actions_are_the_likeliest(name: str) -> None:
    policy, obs, state = made(name, 3)
    before = torch.get_rng_state()
    actions = policy.decide(obs, None, state).actions
    assert torch.equal(torch.get_rng_state(), before)
    if state is None:
        assert torch.equal(actions, policy.act(obs, deterministic=True))


@pytest.mark.parametrize("name", ["PPO box", "PPO parts", "SAC", "noisy DQN", "IQN"])
def test_a_generator_leaves_the_global_one_alone(name: str) -> None:
    policy, _, _ = made(name, 3)
    before = torch.get_rng_state()
    first, second = (policy.draw_noise(3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], second[key]) for key in first)


@torch.no_grad()
def test_moves_are_drawn_as_torchs_categorical_draws_them() -> None:
    policy, obs, _ = made("game", 3)
    logits = policy.evaluate(obs)[0]  # type: ignore[operator]
    for seed in range(20):
        torch.manual_seed(seed)
        theirs = torch.distributions.Categorical(logits=logits).sample()
        torch.manual_seed(seed)
        assert torch.equal(policy.decide(obs, policy.draw_noise(3)).actions, theirs)


class OwnAct(ActorCriticPolicy):
    """Acts in a way of its own."""

    def act(self, obs: Any, deterministic: bool = False) -> Tensor:
        return torch.full((len(obs),), 2)


class OwnDistribution(ActorCriticPolicy):
    """Has a say in the distribution."""

    def get_distribution(self, obs: Any) -> Any:
        return self.action_family(torch.tensor([[0.0, 9.0, 0.0, 0.0]]).repeat(len(obs), 1) * 1e4)


@pytest.mark.parametrize(("kind", "action"), [(OwnAct, 2), (OwnDistribution, 1)])
def test_an_override_is_asked(kind: Any, action: int) -> None:
    policy = kind(VECTOR, CHOICE, **SMALL)
    obs = torch.zeros(3, 5)
    for noise in (None, policy.draw_noise(3)):
        assert policy.decide(obs, noise).actions.tolist() == [action] * 3


def test_what_a_distribution_draws_itself_is_not_asked_for() -> None:
    class Draws:
        def get_actions(self, deterministic: bool) -> Tensor:
            return torch.tensor([float(deterministic)])

    assert chosen(Draws(), None).item() == 1
    assert chosen(Draws(), {}).item() == 0


def test_predict_draws_what_the_actor_draws() -> None:
    policy, _, _ = made("PPO LSTM", 1)
    obs = np.zeros((1, 5), np.float32)
    tensors = policy.obs_to_tensor(obs)[0]
    torch.manual_seed(3)
    action = policy.predict(obs)[0]
    torch.manual_seed(3)
    with torch.no_grad():
        outcome = policy.decide(tensors, policy.draw_noise(1), policy.initial_memory(1))
    assert action.tolist() == outcome.actions.tolist()
