"""MARWIL: its losses in float64, its returns, its moving average, and what it makes of actions of unequal worth."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import BC, MARWIL
from polyak.algorithms import marwil
from polyak.experience import Dataset, Transition, collect
from polyak.hyperparameters.declaration import HyperparameterError
from tests.algorithms.test_bc import SPACES
from tests.pairs import one_of_each
from tests.scores.small_envs import Corridor
from tests.scores.test_small_problems import mean_return

OPTIONS: dict[str, Any] = {"batch_size": 32, "compile": False, "device": "cpu", "seed": 1}
SMALL: dict[str, Any] = {**OPTIONS, "policy_kwargs": {"net_arch": [8]}}


def worth(observations: np.ndarray, actions: np.ndarray, space: spaces.Space) -> np.ndarray:
    """[B]: the first number of an action, its sign changed where the first thing seen is negative."""
    first = actions.reshape(len(actions), -1)[:, 0].astype(np.float64) - np.ravel(getattr(space, "start", 0))[0]
    return np.where(observations[:, 0] > 0, first, -first)


def recorded(space: spaces.Space, n: int = 600, episode: int = 20) -> Dataset:
    """Random actions; half of the episodes end, the others are cut short."""
    space.seed(0)
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    actions = np.stack([space.sample() for _ in range(n)])
    rewards = worth(observations, actions, space)
    last = np.arange(n) % episode == episode - 1
    ends = last & (np.arange(n) % (2 * episode) > episode)
    following = np.roll(observations, -1, axis=0)
    return Dataset(observations, actions, rewards, ends, last & ~ends, next_observations=following, action_space=space)


def in_doubles(kind: str, **options: Any) -> tuple[Any, Transition]:
    """A learner in float64, and a batch."""
    model = MARWIL("MlpPolicy", recorded(SPACES[kind]), **{**SMALL, **options})
    learner = model.learner.double()
    for network in (learner.policy.actor, learner.policy.value):
        network._preprocess = lambda obs: obs  # which would make float32 of them
    batch = Transition.from_samples(model.data_buffer.sample(32), 0.99)
    extras = {name: column.double() for name, column in batch.extras.items()}
    numbers = {name: getattr(batch, name).double() for name in ("observations", "rewards", "discounts", "weights")}
    actions = batch.actions.double() if kind == "box" else batch.actions
    return learner, batch._replace(**numbers, actions=actions, extras=extras)


# -- losses ------------------------------------------------------------------------------------------------------------


def test_weights_and_value_loss_by_hand() -> None:
    advantages, four, two = torch.tensor([2.0, 0.0, -4.0]).double(), torch.tensor(4.0), torch.tensor(2.0)
    expected = torch.tensor([np.exp(2), 1, np.exp(-4)])
    torch.testing.assert_close(marwil.exponential_weights(advantages, two, four), expected, rtol=1e-7, atol=0)
    assert marwil.exponential_weights(advantages, torch.tensor(0.0), torch.tensor(0.0)).tolist() == [1, 1, 1]
    clipped = marwil.exponential_weights(advantages, two, four, torch.tensor(3.0))
    torch.testing.assert_close(clipped, expected.clamp(max=3), rtol=1e-7, atol=0)
    loss = marwil.value_loss(advantages, torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, 2.0]))
    assert loss.item() == pytest.approx((1 + 4 + 2 * 16) / 6)


def log_prob(learner: Any, batch: Transition) -> tuple[Tensor, Tensor]:
    """Of the recorded actions, and the entropy, both [B], by torch's own distributions."""
    actor = learner.policy.actor
    if learner.policy.continuous:
        distribution = actor.get_distribution(batch.observations)
        return distribution.log_prob(batch.actions), distribution.entropy()
    features = actor.extract_features(batch.observations, actor.features_extractor)
    outputs, actions = actor.action_net(features), batch.actions
    if isinstance(learner.policy.action_space, spaces.MultiBinary):
        coins = torch.distributions.Bernoulli(logits=outputs)
        return coins.log_prob(actions.double()).sum(1), coins.entropy().sum(1)
    sizes = [2, 3] if isinstance(learner.policy.action_space, spaces.MultiDiscrete) else [3]
    parts = [torch.distributions.Categorical(logits=part) for part in outputs.split(sizes, 1)]
    logs = sum(part.log_prob(actions[:, i]) for i, part in enumerate(parts))
    return logs, sum(part.entropy() for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", SPACES)
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    """Of -E[w (log pi + b H)] with numbers for the weights w, and of v E[(G - V)^2] / 2."""
    learner, batch = in_doubles(kind, beta=0.7, ent_coef=0.3, vf_coef=0.2, advantage_norm_rate=0.5)
    policy, returns, found = learner.policy, batch.extras["returns_to_go"], {}
    owned = {"actor": list(policy.actor.parameters()), "value": list(policy.value.parameters())}
    gaps = (returns - policy.value(batch.observations)).detach()
    scale = (0.5 * learner.mean_square + 0.5 * (gaps**2).mean()).sqrt()
    weights = (0.7 * gaps / (scale + 1e-8)).exp()

    def actor() -> Tensor:
        logs, entropy = log_prob(learner, batch)
        return -(weights * (logs + 0.3 * entropy)).mean()

    def value() -> Tensor:
        return 0.1 * ((returns - policy.value(batch.observations)) ** 2).mean()

    learner.minimise = lambda name, loss: found.update({name: torch.autograd.grad(loss, owned[name])})
    metrics = learner.gradient_step(batch).metrics
    torch.testing.assert_close(metrics["actor_loss"], actor().detach())
    torch.testing.assert_close(metrics["value_loss"], value().detach())
    torch.testing.assert_close(metrics["advantage_norm"], scale)
    for name, loss in (("actor", actor), ("value", value)):
        for parameter, gradient in zip(owned[name], found[name], strict=True):
            for index in np.ndindex(*parameter.shape[:1], *(1,) * (parameter.ndim - 1)):
                with torch.no_grad():
                    before = parameter[index].clone()
                    parameter[index] = before + 1e-6
                    above = loss()
                    parameter[index] = before - 1e-6
                    below = loss()
                    parameter[index] = before
                assert float(gradient[index]) == pytest.approx(float(above - below) / 2e-6, abs=1e-8, rel=1e-6)


@pytest.mark.parametrize(("kind", "stochastic"), [("box", True), ("discrete", False)])
def test_with_beta_0_it_is_behaviour_cloning(kind: str, stochastic: bool) -> None:
    options = {**SMALL, "stochastic": stochastic, "ent_coef": 0.01, "l2_coef": 1e-4}
    clone = BC("MlpPolicy", recorded(SPACES[kind]), **options)
    model = MARWIL("MlpPolicy", recorded(SPACES[kind]), beta=0.0, **options)
    model.actor.load_state_dict(clone.actor.state_dict())
    clone.data_buffer.seed(5)
    model.data_buffer.seed(5)
    for ours, theirs in zip(model.learn(50).actor.parameters(), clone.learn(50).actor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    other = MARWIL("MlpPolicy", recorded(SPACES[kind]), beta=1.0, **options).learn(50)
    assert not all(map(torch.equal, other.actor.parameters(), model.actor.parameters()))


def test_the_largest_weight_bounds_what_the_best_rows_count() -> None:
    """Advantages of 100 c each: exp overflows single precision; of the bound it is 5 times the clone's loss."""
    settings: dict[str, Any] = {"advantage_norm_rate": 0.0, "advantage_norm_start": 1.0, **SMALL}
    losses = {}
    for bound in (None, 5.0):
        model = MARWIL("MlpPolicy", recorded(SPACES["box"]), max_weight=bound, **settings)
        batch = Transition.from_samples(model.data_buffer.sample(32), 0.99)
        values = model.learner.policy.value(batch.observations).detach()
        batch = batch._replace(extras={"returns_to_go": values + 100})
        losses[bound] = float(model.learner.objectives(batch)[0].loss.detach())
        clone = float(model.learner.actor_objective(batch).loss.detach())
    assert losses[5.0] == pytest.approx(5 * clone, rel=1e-5)
    assert not np.isfinite(losses[None])
    model.max_weight = None
    model.learner.set(max_weight=None)
    assert model.learner.max_weight is None
    with pytest.raises(HyperparameterError, match="max_weight=0"):
        MARWIL("MlpPolicy", recorded(SPACES["box"]), max_weight=0.0, **SMALL)


# -- returns and their size --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["none", (2.0, -1.0)])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_each_row_knows_the_return_that_followed_it(gamma: float, scaling: Any) -> None:
    data = recorded(SPACES["discrete"])
    model = MARWIL("MlpPolicy", data, gamma=gamma, reward_scaling=scaling, **SMALL)
    rewards = data.rewards if scaling == "none" else 2 * data.rewards - 1
    expected = np.zeros(600)
    for start in range(0, 600, 20):
        for t in range(start, start + 20):
            later = np.arange(t, start + 20)
            expected[t] = (gamma ** (later - t) * rewards[later]).sum()
    found = model.data_buffer.storage.columns["extras"]["returns_to_go"].reshape(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert model.advantage_norm_start == pytest.approx((expected**2).mean())
    assert float(model.learner.mean_square) == pytest.approx(model.advantage_norm_start)
    assert model.dataset is data
    assert "returns_to_go" not in data.columns


def test_the_moving_average_by_hand_and_in_files(tmp_path: Path) -> None:
    model = MARWIL("MlpPolicy", recorded(SPACES["box"]), advantage_norm_rate=0.25, advantage_norm_start=9.0, **SMALL)
    for advantages, expected in (([1.0, 3.0], 9 + 0.25 * (5 - 9)), ([0.0, 2.0], 8 + 0.25 * (2 - 8))):
        model.learner.measure(torch.tensor(advantages))
        assert float(model.learner.mean_square) == expected
    model.save(tmp_path / "model")
    loaded = MARWIL.load(tmp_path / "model", device="cpu")
    assert float(loaded.learner.mean_square) == expected
    assert loaded.advantage_norm_start == 9.0
    still = MARWIL("MlpPolicy", recorded(SPACES["box"]), advantage_norm_rate=0.0, advantage_norm_start=9.0, **SMALL)
    assert float(still.learn(20).learner.mean_square) == 9.0
    with pytest.raises(HyperparameterError, match="gamma=0.5 cannot"):
        model.gamma = 0.5


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", one_of_each(SPACES, "multi-discrete"))
def test_it_does_better_than_what_it_was_shown(kind: str) -> None:
    """The teacher acts at random, and so does its clone."""
    data = recorded(SPACES[kind], n=2000, episode=1)
    options = {**SMALL, "learning_rate": 3e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [32]}}
    obs = np.random.default_rng(3).uniform(-1, 1, (400, 3)).astype(np.float32)

    models = [BC("MlpPolicy", data, stochastic=True, **options), MARWIL("MlpPolicy", data, beta=3.0, **options)]
    clone, found = (worth(obs, model.learn(400).predict(obs)[0], SPACES[kind]).mean() for model in models)
    best = {"box": 2.0, "discrete": 1.0, "multi-discrete": 0.5, "multi-binary": 0.5}[kind]
    assert clone < 0.3 * best
    assert found > 0.6 * best


def test_it_carries_what_came_later_to_where_it_was_decided() -> None:
    """In a corridor a reward of 1 comes three steps after the choice, and leaving at once brings 0.2."""
    env = Corridor(False)
    data = collect(env, None, 1500, seed=0)
    options = {**SMALL, "learning_rate": 3e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [32]}}
    assert mean_return(MARWIL("MlpPolicy", data, beta=4.0, **options).learn(300), env) == pytest.approx(1.0)


def test_actor_and_values_remember_each_by_itself() -> None:
    memory = {"net_arch": [8], "memory": "gru", "memory_size": 8, "max_seq_len": 5, "burn_in": 2}
    options = {**SMALL, "policy_kwargs": memory}
    model = MARWIL("MlpPolicy", recorded(SPACES["discrete"]), **options)
    before = {name: p.detach().clone() for name, p in model.policy.value.named_parameters()}
    model.learn(20)
    for name, parameter in model.policy.value.named_parameters():
        assert not torch.equal(before[name], parameter), name
    assert sorted(model.policy.initial_memory(1)) == ["hidden", "value_hidden"]
    clone = BC("MlpPolicy", recorded(SPACES["discrete"]), **options)
    clone.actor.load_state_dict(model.actor.state_dict())
    ours = theirs = None
    for obs in np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32):
        (_, ours), (_, theirs) = (m.predict(obs, s, deterministic=True) for m, s in ((model, ours), (clone, theirs)))
        np.testing.assert_array_equal(ours, theirs)


def test_it_never_acts() -> None:
    with pytest.raises(ValueError, match="MARWIL learns from a dataset alone"):
        MARWIL("MlpPolicy", "CartPole-v1")
