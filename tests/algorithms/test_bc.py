"""Behaviour cloning: its losses, its actions, and what it refuses."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import BC, PPO, SAC, TD3
from polyak.algorithms.bc import BCLearner, negative_log_likelihood, squared_error, squared_norm
from polyak.experience import Dataset, Transition
from polyak.nn import ActorCriticPolicy, ContinuousPolicy, ValuePolicy
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from tests.laws.test_matrix import Anything
from tests.pairs import one_of_each
from tests.worlds import World

SMALL: dict[str, Any] = {"batch_size": 32, "device": "cpu", "seed": 1, "policy_kwargs": {"net_arch": [32]}}
SPACES = {
    "box": spaces.Box(-2.0, 2.0, (2,), np.float32),
    "discrete": spaces.Discrete(3, start=5),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
}

QUICK = {("box", False), ("multi-discrete", True)}


def shown(space: spaces.Space, n: int = 600, episode: int = 20) -> Dataset:
    """A teacher whose actions are functions of what it sees."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (n + n // episode, 3)).astype(np.float32)
    kept = np.delete(np.arange(len(observations)), np.arange(episode, len(observations), episode + 1))
    x, y = observations[kept, 0], observations[kept, 1]
    actions = {
        "Box": np.stack([x, -y], 1).astype(np.float32),
        "Discrete": 5 + (x > -0.3).astype(int) + (x > 0.3),
        "MultiDiscrete": np.stack([x > 0, (y > -0.3).astype(int) + (y > 0.3)], 1).astype(int),
        "MultiBinary": np.stack([x > 0, y > 0, x > y], 1).astype(np.int8),
    }[type(space).__name__]
    ends = np.arange(n) % episode == episode - 1
    return Dataset(observations, actions, np.zeros(n), ends, action_space=space)


def learner_of(model: BC) -> BCLearner:
    assert isinstance(model.learner, BCLearner)
    return model.learner


def test_losses_against_their_definitions() -> None:
    rng = np.random.default_rng(0)
    actions, recorded, weights = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.uniform(size=5)
    expected = np.mean([w * np.mean((a - b) ** 2) for a, b, w in zip(actions, recorded, weights, strict=True)])
    assert squared_error(*map(torch.from_numpy, (actions, recorded, weights))).item() == pytest.approx(expected)
    assert negative_log_likelihood(*map(torch.from_numpy, (actions[:, 0], weights))).item() == pytest.approx(
        -np.mean(actions[:, 0] * weights)
    )
    both = [torch.from_numpy(actions), torch.from_numpy(weights)]
    assert squared_norm(both).item() == pytest.approx(0.5 * ((actions**2).sum() + (weights**2).sum()))


@pytest.mark.parametrize(
    ("kind", "stochastic"),
    [
        pytest.param(kind, stochastic, marks=[] if (kind, stochastic) in QUICK else pytest.mark.slow)
        for kind in SPACES
        for stochastic in (False, True)
    ],
)
def test_it_does_as_it_was_shown(kind: str, stochastic: bool) -> None:
    data = shown(SPACES[kind])
    model = BC("MlpPolicy", data, learning_rate=3e-3, stochastic=stochastic, **SMALL).learn(600)
    rows = data.transitions()
    actions, _ = model.predict(rows.observations, deterministic=True)
    assert actions.shape == rows.actions.shape
    if kind == "box":  # the teacher's actions vary by 0.58 about their mean
        assert np.sqrt(np.mean((actions - rows.actions) ** 2)) < 0.1
    else:
        assert np.mean(actions == rows.actions) > 0.9


GAUSSIAN: dict[str, Any] = {"policy_kwargs": {"net_arch": [32]}, "device": "cpu", "seed": 2}
DETERMINISTIC = {"policy_kwargs": {"net_arch": [32], "actor": "deterministic"}}
FOREIGN: dict[str, tuple[Any, str, dict[str, Any], Any]] = {
    "discrete": (ActorCriticPolicy, "discrete", {}, PPO),
    "multi-discrete": (ActorCriticPolicy, "multi-discrete", {}, PPO),
    "multi-binary": (ActorCriticPolicy, "multi-binary", {}, PPO),
    "mean": (ActorCriticPolicy, "box", {}, PPO),
    "Gaussian": (ActorCriticPolicy, "box", {"stochastic": True}, PPO),
    "squashed mean": (ContinuousPolicy, "box", {}, SAC),
    "squashed Gaussian": (ContinuousPolicy, "box", {"stochastic": True}, SAC),
    "TD3": (ContinuousPolicy, "box", DETERMINISTIC, TD3),
}


@pytest.mark.parametrize("name", one_of_each(FOREIGN, "multi-discrete", "TD3"))
def test_a_policy_of_another_algorithm_is_cloned_into_and_loses_nothing_there(name: str) -> None:
    policy, kind, options, algorithm = FOREIGN[name]
    data = shown(SPACES[kind])
    clone = BC(policy, data, learning_rate=3e-3, normalize_observations=False, **{**SMALL, **options}).learn(600)
    rows = data.transitions()
    actions, _ = clone.predict(rows.observations, deterministic=True)
    if kind == "box":
        assert np.sqrt(np.mean((actions - rows.actions) ** 2)) < 0.15
    else:
        assert np.mean(actions == rows.actions) > 0.9
    if name in ("mean", "Gaussian"):
        assert bool((clone.policy.log_std < -0.5).all()) is (name == "Gaussian"), "it begins at 0"

    env = Anything(data.observation_space, data.action_space, False, False)
    model = algorithm("MlpPolicy", env, **GAUSSIAN)
    assert not np.array_equal(model.predict(rows.observations, deterministic=True)[0], actions)
    model.policy.load_state_dict(clone.policy.state_dict())
    for deterministic in (True, False):
        drawn = []
        for one in (clone, model):
            torch.manual_seed(3)
            drawn.append(one.predict(rows.observations, deterministic=deterministic)[0])
        np.testing.assert_array_equal(*drawn)
    if algorithm is TD3:
        for ours, theirs in zip(model.actor.parameters(), model.actor_target.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_policies_without_a_fitting_actor_are_refused() -> None:
    box = shown(SPACES["box"])
    with pytest.raises(ValueError, match=r"policy='ValuePolicy'.*it has no actor"):
        BC(ValuePolicy, shown(spaces.Discrete(3, start=5)), **SMALL)
    with pytest.raises(ValueError, match=r"stochastic=True.*has no distribution"):
        BC(ContinuousPolicy, box, stochastic=True, **{**SMALL, **DETERMINISTIC})
    with pytest.raises(ValueError, match=r"policy='RecurrentActorCriticPolicy'.*it has no actor"):
        BC(RecurrentActorCriticPolicy, box, device="cpu")


def test_least_squares_says_nothing_of_the_spread() -> None:
    model = BC("MlpPolicy", shown(SPACES["box"]), **SMALL)
    spread = model.actor.log_std.clone()
    model.learn(20)
    torch.testing.assert_close(model.actor.log_std, spread, rtol=0, atol=0)
    obs = np.zeros(3, np.float32)
    np.testing.assert_array_equal(model.predict(obs)[0], model.predict(obs)[0])


def test_likelihood_learns_the_spread() -> None:
    data = shown(SPACES["box"])
    noisy = data.actions + np.random.default_rng(1).normal(scale=0.2, size=data.actions.shape).astype(np.float32)
    parts = {"rewards": data.rewards, "terminations": data.terminations, "action_space": SPACES["box"]}
    model = BC("MlpPolicy", Dataset(data.observations, noisy, **parts), stochastic=True, learning_rate=3e-3, **SMALL)
    model.learn(800)
    # 0.2 of a range of 4 are 0.1 in [-1, 1]; what the mean still misses adds to it
    assert model.actor.log_std.exp().detach().numpy() == pytest.approx(np.full(2, 0.1), rel=0.35)


def test_gradients_are_those_of_the_likelihood() -> None:
    model = BC("MlpPolicy", shown(SPACES["discrete"]), ent_coef=0.1, l2_coef=0.01, **SMALL)
    batch = Transition.from_samples(model.data_buffer.sample(32), 0.99)
    logits = model.actor.action_net(model.actor.features_extractor(batch.observations))
    probs = logits.softmax(1)
    chosen = probs.gather(1, batch.actions.long())[:, 0]
    entropy = -(probs * probs.log()).sum(1)
    norm = sum((p**2).sum() for p in model.actor.parameters()) / 2
    expected = -chosen.log().mean() - 0.1 * entropy.mean() + 0.01 * norm
    assert learner_of(model).actor_objective(batch).loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("memory", one_of_each(["lstm", "gru"], "gru"))
def test_with_memory_it_learns_what_must_be_remembered(memory: str) -> None:
    """The action is the sign of what was seen first, and of nothing since."""
    rng = np.random.default_rng(0)
    episodes, steps = 150, 4
    observations = np.zeros((episodes, steps + 1, 2), np.float32)
    observations[:, 0, 0] = rng.choice([-1.0, 1.0], episodes)
    observations[:, :, 1] = rng.normal(size=(episodes, steps + 1))
    actions = np.repeat(observations[:, :1, 0] > 0, steps, axis=1).astype(int)
    ends = np.tile(np.arange(steps) == steps - 1, episodes)
    data = Dataset(observations.reshape(-1, 2), actions.reshape(-1), np.zeros(episodes * steps), ends)
    remembers = {"memory": memory, "memory_size": 16, "max_seq_len": 4, "burn_in": 0, "net_arch": []}
    options = {**SMALL, "policy_kwargs": remembers, "batch_size": 128}
    model = BC("MlpPolicy", data, learning_rate=1e-2, **options).learn(150)
    state, start, right = None, np.ones(episodes, bool), []
    for t in range(steps):
        chosen, state = model.predict(observations[:, t], state, start, deterministic=True)
        start = np.zeros(episodes, bool)
        right.append(np.mean(chosen == actions[:, t]))
    assert min(right) > 0.9


def test_it_does_not_learn_by_acting() -> None:
    with pytest.raises(ValueError, match="DAgger"):
        BC("MlpPolicy", gym.make("CartPole-v1"))
    model = BC("MlpPolicy", shown(SPACES["box"]), **SMALL)
    model.set_env(World(observation_space=spaces.Box(-np.inf, np.inf, (3,)), action_space=SPACES["box"]))
    with pytest.raises(ValueError, match="DAgger"):
        model.learn(10)
