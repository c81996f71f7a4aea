"""Fitted Q Evaluation against exact evaluation, where that is known, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import FQE, PPO, SAC, TD3
from polyak.algorithms import fqe
from polyak.evaluation.off_policy.log_probs import NotApplicableError
from polyak.experience import Dataset, collect
from polyak.hyperparameters.declaration import HyperparameterError

GAMMA = 0.8
LINEAR = {"policy_kwargs": {"net_arch": []}, "normalize_observations": False, "device": "cpu", "seed": 0}
PENDULUM = "Pendulum-v1"


def falling(rate: float) -> Any:
    """A learning rate that falls to nothing, so that what minibatches disagree about is averaged."""
    return lambda remaining: rate * remaining


# -- losses ------------------------------------------------------------------------------------------------------------


def test_the_target_of_each_critic_is_its_own() -> None:
    rewards, discounts = torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0])
    target = fqe.bellman_target(rewards, discounts, torch.tensor([[10.0, 20.0], [-1.0, -2.0]]))
    torch.testing.assert_close(target, torch.tensor([[10.0, 2.0], [0.1, 2.0]]))


def test_the_loss_adds_up_critics_and_weighs_rows() -> None:
    q, target = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    weights = torch.tensor([1.0, 0.5])
    assert fqe.regression_loss(q, target, weights).item() == pytest.approx((1 + 0.5 * 4) / 2 + 0.5 * 16 / 2)


# -- a table -----------------------------------------------------------------------------------------------------------


class Chain:
    """Three states and two actions; what follows an action is drawn, and one state may end the episode."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.outcomes = rng.integers(0, 4, (3, 2, 4))  # four successors of equal chance; 3 is the end
        self.reward = rng.normal(size=(3, 2)).round(1)
        self.policy = rng.dirichlet(np.ones(2), 3)

    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """Q [S, A] and V [S] of the policy, by solving the linear equations."""
        chance = np.stack([(self.outcomes == s).mean(2) for s in range(3)], 2)  # [S, A, S']
        inner = np.einsum("sa,sat->st", self.policy, chance)
        v = np.linalg.solve(np.eye(3) - GAMMA * inner, (self.policy * self.reward).sum(1))
        return self.reward + GAMMA * chance @ v, v

    def dataset(self) -> Dataset:
        """Every outcome once: what the data say on average is what holds."""
        s, a, k = (grid.reshape(-1) for grid in np.meshgrid(range(3), range(2), range(4), indexing="ij"))
        then = self.outcomes[s, a, k]
        return Dataset(
            np.eye(3, dtype=np.float32)[s],
            a,
            self.reward[s, a],
            then == 3,
            then != 3,  # every row an episode of its own
            next_observations=np.eye(3, dtype=np.float32)[then % 3],
            observation_space=spaces.Box(0, 1, (3,), np.float32),
            action_space=spaces.Discrete(2),
        )

    def actor(self) -> PPO:
        """A model of exactly these probabilities."""
        model = PPO(
            "MlpPolicy",
            None,
            policy_kwargs={"net_arch": [], "ortho_init": False},
            device="cpu",
            _init_setup_model=False,
        )
        data = self.dataset()
        model.observation_space, model.action_space = data.observation_space, data.action_space
        model._setup_model()
        with torch.no_grad():
            model.policy.action_net.weight.copy_(torch.from_numpy(np.log(self.policy).T))
            model.policy.action_net.bias.zero_()
        return model


def full_batch_updates(model: FQE, steps: int) -> None:
    """Gradient steps on all rows at once."""
    assert model.data_buffer is not None
    rows = np.arange(len(model.dataset))  # type: ignore[arg-type]
    samples = model.data_buffer._get_samples(rows)
    batch = fqe.Transition.from_samples(samples, model.gamma)
    for step in range(steps):
        model.learner.set(learning_rate=0.1 * (1 - step / steps))
        model.learner.update(batch)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


def test_of_a_table_it_is_exact_evaluation(chain: Chain) -> None:
    model = FQE("MlpPolicy", chain.dataset(), target=chain.actor(), gamma=GAMMA, tau=0.2, **LINEAR)
    full_batch_updates(model, 600)
    q, v = chain.values()
    s, a = (grid.reshape(-1) for grid in np.meshgrid(range(3), range(2), indexing="ij"))
    seen = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(model.q_values(seen[s], a)[0], q[s, a], atol=1e-3)
    np.testing.assert_allclose(model.values(seen)[0], v, atol=1e-3)
    estimate = model.estimate()
    assert estimate.value == pytest.approx(v.mean(), abs=1e-3)  # every state begins as many episodes
    assert estimate.low < estimate.value < estimate.high


def test_it_evaluates_likeliest_actions_if_asked_to(chain: Chain) -> None:
    model = FQE("MlpPolicy", chain.dataset(), target=chain.actor(), deterministic=True, gamma=GAMMA, tau=0.2, **LINEAR)
    full_batch_updates(model, 600)
    greedy = Chain()
    greedy.policy = np.eye(2)[chain.policy.argmax(1)]
    np.testing.assert_allclose(model.values(np.eye(3, dtype=np.float32))[0], greedy.values()[1], atol=1e-3)


def test_learning_by_minibatches_comes_to_the_same(chain: Chain) -> None:
    """Of what never varies, so that there is nothing to average."""
    certain = Chain()
    certain.outcomes = np.repeat(certain.outcomes[:, :, :1], 4, 2)
    model = FQE("MlpPolicy", certain.dataset(), falling(0.1), target=certain.actor(), gamma=GAMMA, tau=0.2, **LINEAR)
    model.learn(800)
    np.testing.assert_allclose(model.values(np.eye(3, dtype=np.float32))[0], certain.values()[1], atol=1e-3)
    assert model.num_timesteps == model._n_updates == 800


def one_state(terminal: bool, **options: Any) -> FQE:
    """One step of reward 1, after which the episode has ended, or was cut short in the same state."""
    ones, no = np.ones((4, 1), np.float32), np.zeros(4, bool)
    data = Dataset(
        ones, np.zeros(4, np.int64), np.ones(4), no | terminal, no | (not terminal), next_observations=ones,
        observation_space=spaces.Box(-1, 1, (1,), np.float32), action_space=spaces.Discrete(2),
    )  # fmt: skip
    return FQE("MlpPolicy", data, target=lambda obs: 0, gamma=GAMMA, tau=0.2, **{**LINEAR, **options})


@pytest.mark.parametrize(("terminal", "value"), [(True, 1.0), (False, 1 / (1 - GAMMA))])
def test_a_terminal_state_is_worth_nothing_and_a_time_limit_is_passed(terminal: bool, value: float) -> None:
    model = one_state(terminal)
    full_batch_updates(model, 600)
    assert model.estimate().value == pytest.approx(value, abs=1e-3)


def test_scaled_rewards_are_scaled_back() -> None:
    model = one_state(False, reward_scaling=(0.05, 0.0))
    full_batch_updates(model, 600)
    assert model.data_buffer is not None
    assert model.data_buffer.rewards.max() == pytest.approx(0.05)
    assert model.estimate().value == pytest.approx(5.0, abs=2e-2)  # of 0.25, to 1e-3


def test_each_critic_of_an_ensemble_says_its_own() -> None:
    model = one_state(True, n_critics=3)
    with pytest.warns(UserWarning, match=r"stands for the choice of first states alone. Errors of its critics"):
        before = model.estimate()
    assert len(set(before.by_critic)) == 3
    assert before.value == pytest.approx(np.mean(before.by_critic))
    full_batch_updates(model, 600)
    np.testing.assert_allclose(model.estimate().by_critic, 1.0, atol=1e-3)


# -- continuous actions ------------------------------------------------------------------------------------------------


class Line:
    """s' = s / 2 + 0.3 a, r = s + 2 a, a in [-2, 4]; whoever does a = s / 2 earns c s with c = 2 / (1 - 0.65 gamma)."""

    slope = 2 / (1 - 0.65 * GAMMA)
    action_space = spaces.Box(-2, 4, (1,), np.float32)

    def dataset(self) -> Dataset:
        rng = np.random.default_rng(0)
        s, a = rng.uniform(-1, 1, (200, 1)).astype(np.float32), rng.uniform(-2, 4, (200, 1)).astype(np.float32)
        over = np.zeros(200, bool)
        return Dataset(
            s, a, (s + 2 * a)[:, 0], over, ~over, next_observations=s / 2 + 0.3 * a, action_space=self.action_space
        )

    def q(self, s: np.ndarray, a: np.ndarray) -> np.ndarray:
        return s + 2 * a + GAMMA * self.slope * (s / 2 + 0.3 * a)


class Wavering:
    """Does what it should do on average, up to 0.5 more or less."""

    def predict(self, observation: np.ndarray, deterministic: bool = False) -> tuple[np.ndarray, None]:
        noise = np.random.uniform(-0.5, 0.5, observation.shape) * (not deterministic)
        return observation / 2 + noise, None


def test_of_linear_values_it_is_exact_in_the_units_of_the_environment() -> None:
    line = Line()
    model = FQE("MlpPolicy", line.dataset(), target=lambda obs: obs / 2, gamma=GAMMA, tau=0.2, **LINEAR)
    full_batch_updates(model, 1000)
    s, a = np.linspace(-1, 1, 9)[:, None].astype(np.float32), np.linspace(-2, 4, 9)[:, None]
    np.testing.assert_allclose(model.q_values(s, a)[0], line.q(s, a)[:, 0], atol=2e-3)
    np.testing.assert_allclose(model.values(s)[0], line.slope * s[:, 0], atol=2e-3)


def test_a_stochastic_policy_is_asked_for_several_actions() -> None:
    data = Line().dataset()
    model = FQE("MlpPolicy", data, target=Wavering(), n_samples=7, gamma=GAMMA, **LINEAR)
    assert model.data_buffer is not None
    drawn = model.data_buffer.extras[fqe.CHOICES][:, 0]
    assert drawn.shape == (200, 7, 1)
    wanted = (data.transitions().next_observations / 2 + 2) / 3 - 1  # [-2, 4] as [-1, 1]
    assert abs(drawn - wanted[:, None]).max() <= 0.5 / 3 + 1e-6
    assert drawn.std(1).min() > 0
    once = FQE("MlpPolicy", data, target=Wavering(), n_samples=7, deterministic=True, gamma=GAMMA, **LINEAR)
    assert once.data_buffer is not None
    np.testing.assert_allclose(once.data_buffer.extras[fqe.CHOICES][:, 0, 0], wanted, atol=1e-6)


def test_of_a_discrete_policy_the_probabilities_are_kept(chain: Chain) -> None:
    model = FQE("MlpPolicy", chain.dataset(), target=chain.actor(), **LINEAR)
    assert model.data_buffer is not None
    kept = model.data_buffer.extras[fqe.CHOICES][:, 0]
    successors = chain.dataset().transitions().next_observations.argmax(1)
    np.testing.assert_allclose(kept, chain.policy[successors], atol=1e-6)


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swings() -> Dataset:
    return collect(PENDULUM, None, 250, seed=0)


@pytest.fixture(scope="module")
def actor() -> TD3:
    return TD3("MlpPolicy", PENDULUM, seed=1, device="cpu", policy_kwargs={"net_arch": [8]})


SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 8, "device": "cpu", "seed": 0}


def test_it_predicts_what_the_policy_does_also_from_a_file(swings: Dataset, actor: TD3, tmp_path: Path) -> None:
    model = FQE("MlpPolicy", swings, target=actor, **SMALL).learn(20)
    obs = swings.transitions(slice(0, 30)).observations
    np.testing.assert_array_equal(model.predict(obs)[0], actor.predict(obs)[0])
    model.save(tmp_path / "fqe")
    loaded = FQE.load(tmp_path / "fqe")
    assert isinstance(loaded.target, TD3)
    np.testing.assert_array_equal(loaded.predict(obs)[0], actor.predict(obs)[0])
    np.testing.assert_array_equal(loaded.values(obs), model.values(obs))
    assert loaded.estimate(swings) == model.estimate() == model.estimate(swings)
    with pytest.raises(HyperparameterError, match="dataset=None .* pass one, or FQE.load"):
        loaded.estimate()
    with pytest.raises(HyperparameterError, match="env=None .* FQE.load"):
        loaded.learn(1)


def test_reading_a_file_leaves_random_numbers_alone(swings: Dataset, actor: TD3, tmp_path: Path) -> None:
    FQE("MlpPolicy", swings, target=actor, **{**SMALL, "seed": None}).save(tmp_path / "fqe")
    torch.manual_seed(7)
    FQE.load(tmp_path / "fqe", target=lambda obs: np.zeros(1))
    without = torch.get_rng_state()
    torch.manual_seed(7)
    FQE.load(tmp_path / "fqe")
    assert torch.equal(torch.get_rng_state(), without)


def test_a_function_is_not_in_the_file(swings: Dataset, tmp_path: Path) -> None:
    model = FQE("MlpPolicy", swings, target=lambda obs: np.ones(1), **SMALL).learn(20)
    model.save(tmp_path / "fqe")
    loaded, part = FQE.load(tmp_path / "fqe"), swings.transitions(slice(0, 30))
    np.testing.assert_array_equal(
        loaded.q_values(part.observations, part.actions), model.q_values(part.observations, part.actions)
    )
    for ask in (loaded.predict, loaded.values):
        with pytest.raises(HyperparameterError, match="target=None cannot be used: pass the policy to evaluate"):
            ask(part.observations)
    given = FQE.load(tmp_path / "fqe", env=swings, target=lambda obs: np.ones(1))
    assert given.estimate() == model.estimate()
    assert given.predict(part.observations[0])[0] == 1.0


def test_the_policy_is_not_changed(swings: Dataset, actor: TD3) -> None:
    before = {name: tensor.clone() for name, tensor in actor.policy.state_dict().items()}
    FQE("MlpPolicy", swings, target=actor, **SMALL).learn(30)
    assert all(torch.equal(before[name], tensor) for name, tensor in actor.policy.state_dict().items())


def test_held_out_episodes_are_judged_too(actor: TD3) -> None:
    data = collect(PENDULUM, None, 600, seed=0)
    model = FQE("MlpPolicy", data.select([0]), target=actor, **SMALL).learn(20)
    others = data.select([1, 2])
    estimate = model.estimate(others)
    first = np.stack([others.episode(e).observations[0] for e in range(2)])
    assert estimate.value == pytest.approx(model.values(first).mean())
    assert estimate.n_episodes == 2
    alone = model.estimate()
    assert np.isnan(alone.low) and np.isfinite(alone.value)  # noqa: PT018


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"target": None}, "target=None cannot be used: pass the policy"),
    ({"target": 3}, "target=3 cannot be used: it must be a model"),
    ({"target": FQE}, "target=<class .* cannot be used: it must be a model"),
    ({"reward_scaling": "standard"}, "reward_scaling='standard' cannot be used: values could not be given"),
    ({"reward_scaling": (1.0, 2.0)}, "reward_scaling=.* cannot be used: values could not be given"),
    ({"env": PENDULUM}, "env='Pendulum-v1' cannot be used: FQE learns from a dataset alone"),
    ({"target": lambda obs: np.ones(2)}, r"gave actions of shape \(250?, 2\)|gave actions of shape"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], message: str, swings: Dataset, actor: TD3) -> None:
    with pytest.raises(ValueError, match=message):
        FQE("MlpPolicy", **{"env": swings, "target": actor, **SMALL, **options})


def test_environments_memories_and_other_spaces_are_refused(swings: Dataset, actor: TD3) -> None:
    model = FQE("MlpPolicy", swings, target=actor, **SMALL)
    with pytest.raises(HyperparameterError, match="FQE learns from a dataset alone"):
        model.set_env(PENDULUM)  # type: ignore[arg-type]
    remembers = SAC("MlpPolicy", PENDULUM, device="cpu", policy_kwargs={"net_arch": [8], "memory": "gru"})
    with pytest.raises(NotApplicableError, match="acts on a recurrent state"):
        FQE("MlpPolicy", swings, target=remembers, **SMALL)
    data = Dataset(swings.transitions().observations, swings.actions, swings.rewards, np.zeros(250, bool),
                   next_observations=swings.transitions().next_observations)  # fmt: skip
    with pytest.raises(HyperparameterError, match=r"Use dataset\.for_env\(env\)"):
        FQE("MlpPolicy", data, target=actor, **SMALL)
