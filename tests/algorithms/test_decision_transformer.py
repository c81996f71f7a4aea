"""The Decision Transformer: what it learns from, what it remembers while it acts, and what it is asked for."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import DecisionTransformer
from polyak.algorithms.decision_transformer import negative_log_likelihood, squared_error
from polyak.envs import DummyVecEnv
from polyak.evaluation.in_environments import evaluate_policy
from polyak.experience import Dataset, Transition, collect
from tests.pairs import one_of_each
from tests.worlds import World

SMALL: dict[str, Any] = {
    "policy_kwargs": {"width": 16, "n_layers": 2},
    "context_length": 4,
    "batch_size": 16,
    "device": "cpu",
    "seed": 1,
}
ACTIONS = {
    "box": spaces.Box(-2.0, 2.0, (2,), np.float32),
    "discrete": spaces.Discrete(3, start=5),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
}


def recorded(space: spaces.Space, episodes: int = 12) -> Dataset:
    """Episodes of 1 to 12 steps of noise."""
    space.seed(0)
    rng = np.random.default_rng(0)
    lengths = np.arange(1, episodes + 1)
    n = int(lengths.sum())
    ends = np.zeros(n, bool)
    ends[lengths.cumsum() - 1] = True
    actions = np.stack([space.sample() for _ in range(n)])
    observations = rng.normal(size=(n + episodes, 3)).astype(np.float32)
    return Dataset(observations, actions, rng.normal(size=n), ends, action_space=space)


@pytest.fixture(scope="module")
def numbers() -> Dataset:
    return recorded(ACTIONS["box"])


def batch_of(model: DecisionTransformer, rows: int = 32) -> Transition:
    assert model.data_buffer is not None
    return Transition.from_samples(model.data_buffer.sample(rows), model.gamma)


# -- losses and the network --------------------------------------------------------------------------------------------


def test_losses_against_their_definitions() -> None:
    rng = np.random.default_rng(0)
    actions, other, valid = rng.normal(size=(4, 5, 2)), rng.normal(size=(4, 5, 2)), rng.random((4, 5)) < 0.6
    steps = [(b, t) for b in range(4) for t in range(5) if valid[b, t]]
    expected = np.mean([np.mean((actions[step] - other[step]) ** 2) for step in steps])
    given = torch.from_numpy(actions), torch.from_numpy(other), torch.from_numpy(valid)
    assert squared_error(*given).item() == pytest.approx(expected)
    expected = -np.mean([actions[step][0] for step in steps])
    assert negative_log_likelihood(given[0][..., 0], given[2]).item() == pytest.approx(expected)


def test_nothing_is_known_of_what_comes_later(numbers: Dataset) -> None:
    policy: Any = DecisionTransformer("MlpPolicy", numbers, **SMALL).policy.eval()
    net = policy.transformer
    torch.manual_seed(0)
    for parameter in net.parameters():  # larger than at first, so that everything counts
        torch.nn.init.normal_(parameter, std=0.5)
    given = [torch.randn(2, 4, net.features_dim), torch.randn(2, 4, net.n_read), torch.randn(2, 4)]
    times = torch.arange(4).expand(2, -1)
    before = net(*given, times)
    changes_from = (0, 1, 0)  # a state and a return count for their own action, an action for the next one
    for i, later in enumerate(changes_from):
        for step in range(4):
            other = [part.clone() for part in given]
            other[i][:, step] += 1
            moved = (net(*other, times) != before).any(2).any(0)
            assert moved.tolist() == [t >= step + later for t in range(4)]
    assert (net(*given, times + 1) != before).all()


# -- what is replayed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_sequences_are_pieces_of_episodes(numbers: Dataset, gamma: float) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, gamma=gamma, **SMALL)
    batch = batch_of(model, 400)
    rows = numbers.transitions()
    place = {row.tobytes(): i for i, row in enumerate(rows.observations)}
    to_go = numbers.returns_to_go(gamma)
    scale = np.abs(to_go).max()
    starts = []
    for b in range(400):
        at = [place[obs.tobytes()] for obs in batch.observations[b].numpy()]
        starts.append(at[0])
        left = int(numbers.ends[numbers.episode_numbers[at[0]]] - at[0])
        steps = min(left, 4)
        assert batch.valid[b].tolist() == [t < steps for t in range(4)]
        assert at[:steps] == list(range(at[0], at[0] + steps))
        told = batch.extras
        np.testing.assert_array_equal(told["timesteps"][b, :steps], numbers.timesteps[at[:steps]])
        np.testing.assert_allclose(told["returns_to_go"][b, :steps], to_go[at[:steps]] / scale, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(batch.actions[b, :steps], rows.actions[at[:steps]] / 2, rtol=1e-6, atol=1e-7)
    counts = np.bincount(numbers.episode_numbers[starts], minlength=12)
    chances = numbers.lengths / len(numbers)  # by their lengths; no count is 5 deviations from its mean
    assert (np.abs(counts - 400 * chances) < 5 * np.sqrt(400 * chances)).all()


@pytest.mark.parametrize("kind", ACTIONS)
def test_padding_does_not_count(kind: str) -> None:
    model = DecisionTransformer("MlpPolicy", recorded(ACTIONS[kind]), **SMALL)
    learner: Any = model.learner
    learner.policy.eval()
    batch = batch_of(model)
    outputs = learner.policy(
        batch.observations, batch.actions, batch.extras["returns_to_go"], batch.extras["timesteps"]
    )
    loss = learner.objective(batch, outputs).loss
    empty = ~batch.valid
    assert empty.any()
    observations = torch.where(empty[..., None], 7.0, batch.observations)
    told = {
        "returns_to_go": torch.where(empty, 7.0, batch.extras["returns_to_go"]),
        "timesteps": batch.extras["timesteps"],
    }
    other = learner.policy(observations, batch.actions, *told.values())
    torch.testing.assert_close(learner.objective(batch, other).loss, loss, rtol=0, atol=0)


def test_the_loss_of_choices_is_their_cross_entropy() -> None:
    model = DecisionTransformer("MlpPolicy", recorded(ACTIONS["discrete"]), **SMALL)
    learner: Any = model.learner
    batch, logits = batch_of(model), torch.randn(32, 4, 3)
    probs, chosen = logits.softmax(2).numpy(), batch.actions[..., 0].long().numpy()
    assert set(chosen.ravel()) == {0, 1, 2}
    logs = [np.log(probs[b, t, chosen[b, t]]) for b in range(32) for t in range(4) if batch.valid[b, t]]
    assert learner.objective(batch, logits).loss.item() == pytest.approx(-np.mean(logs), rel=1e-5)


# -- acting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTIONS)
def test_it_acts_as_it_was_taught(kind: str) -> None:
    """Each action is what the network says, in training's own form, of the last steps as they were."""
    model = DecisionTransformer("MlpPolicy", recorded(ACTIONS[kind]), gamma=0.95, target_return=3.0, **SMALL)
    policy: Any = model.policy
    for parameter in policy.transformer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(9, 3)).astype(np.float32)
    rewards = rng.normal(size=9)
    state, returns, actions = None, [3.0], []
    for t in range(9):
        action, state = model.predict(observations[t], state, deterministic=True)
        actions.append(policy.codec.from_env(action).reshape(-1))
        state = model.with_rewards(state, rewards[t])
        since = max(0, t - 3)
        steps = slice(since, t + 1)
        with torch.no_grad():
            outputs = policy(
                torch.from_numpy(observations[None, steps]),
                torch.as_tensor(np.array(actions[steps])[None]),
                torch.tensor(returns[steps], dtype=torch.float32)[None] / model.return_scale,
                torch.arange(since, t + 1)[None].clamp(max=11),
            )[:, -1]
        expected = outputs if kind == "box" else policy.distribution(outputs).mode()
        # two orders of the same sums, through two blocks of width 16
        np.testing.assert_allclose(actions[-1], expected.numpy().reshape(-1), rtol=0, atol=1e-5)
        returns.append((returns[-1] - rewards[t]) / 0.95)


def test_environments_side_by_side_do_not_see_each_other(numbers: Dataset) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, **SMALL)
    rng = np.random.default_rng(0)
    observations, rewards = rng.normal(size=(7, 2, 3)).astype(np.float32), rng.normal(size=(7, 2))
    starts = np.zeros((7, 2), bool)
    starts[0] = True
    starts[3, 1] = True  # the second begins another episode
    state: Any = None
    alone: list[Any] = [None, None]
    for t in range(7):
        actions, state = model.predict(observations[t], state, starts[t], deterministic=True)
        state = model.with_rewards(state, rewards[t])
        for i in range(2):
            before = None if starts[t, i] else alone[i]
            action, alone[i] = model.predict(observations[t, i], before, deterministic=True)
            np.testing.assert_allclose(action, actions[i], rtol=0, atol=1e-5)
            alone[i] = model.with_rewards(alone[i], rewards[t, i])


def test_predicting_leaves_the_state_alone(numbers: Dataset) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, **SMALL)
    _, state = model.predict(np.zeros(3, np.float32))
    copies = [array.copy() for array in state]
    model.predict(np.ones(3, np.float32), state)
    model.with_rewards(state, 3.0)
    for array, copy in zip(state, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert model.with_rewards(None, 1.0) is None


class Paying(World):
    """Pays 1, 2, 3 ... and ends after as many steps as it is told."""

    observation_space, action_space = spaces.Box(-9, 9, (3,), np.float32), ACTIONS["box"]

    def act(self, action: np.ndarray) -> float:
        return float(self.t)


def test_evaluation_tells_it_what_was_paid(numbers: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, target_return=10.0, return_scale=2.0, **SMALL)
    policy: Any = model.policy
    asked: list[list[float]] = []
    decide = policy.decide
    monkeypatch.setattr(
        policy,
        "decide",
        lambda obs, noise, state, *rest: (
            asked.append((2 * state["wanted"]).tolist()),
            decide(obs, noise, state, *rest),
        )[1],
    )
    evaluate_policy(
        model, DummyVecEnv([lambda: Paying(length=2), lambda: Paying(length=4)]), n_eval_episodes=4, warn=False
    )
    first, second = np.array(asked).T
    assert first[:6].tolist() == [10, 9, 10, 9, 10, 9]
    assert second[:6].tolist() == [10, 9, 7, 4, 10, 9]


def test_what_it_asks_for(numbers: Dataset, tmp_path: Any) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, **SMALL)
    assert model.target_return == pytest.approx(numbers.returns.max())
    assert model.return_scale == pytest.approx(np.abs(numbers.returns_to_go()).max())
    assert model.max_episode_steps == 12

    def wanted(model: DecisionTransformer) -> float:
        return float(model.predict(np.zeros(3, np.float32))[1][-1][0]) * model.return_scale

    assert wanted(model) == pytest.approx(model.target_return, rel=1e-6)
    model.target_return = -2.0
    assert wanted(model) == pytest.approx(-2, rel=1e-6)
    model.save(tmp_path / "model")
    loaded = DecisionTransformer.load(tmp_path / "model")
    assert wanted(loaded) == pytest.approx(-2, rel=1e-6)
    assert (loaded.return_scale, loaded.max_episode_steps) == (model.return_scale, 12)
    assert wanted(DecisionTransformer.load(tmp_path / "model", target_return=5.0)) == pytest.approx(5, rel=1e-6)


def test_time_stands_still_beyond_the_longest_episode(numbers: Dataset) -> None:
    options = {**SMALL, "context_length": 1, "max_episode_steps": 3}
    model = DecisionTransformer("MlpPolicy", numbers, **options)
    state, actions = None, []
    for _ in range(5):
        action, state = model.predict(np.zeros(3, np.float32), state, deterministic=True)
        actions.append(action)
    assert not np.array_equal(actions[1], actions[2])
    np.testing.assert_array_equal(actions[2], actions[3])
    np.testing.assert_array_equal(actions[2], actions[4])


@pytest.mark.parametrize("continuous", one_of_each([False, True], True))
def test_it_does_what_the_return_asks_for(continuous: bool) -> None:
    """In each episode one choice was made throughout, and paid by its number: the return says which."""
    rng = np.random.default_rng(0)
    episodes, steps = 200, 5
    choices = rng.integers(3, size=episodes)
    actions = np.repeat(choices, steps)
    observations = rng.normal(size=(episodes * (steps + 1), 2)).astype(np.float32)
    ends = np.tile(np.arange(steps) == steps - 1, episodes)
    space = spaces.Box(0, 2, (1,), np.float32) if continuous else spaces.Discrete(3)
    shown = actions[:, None].astype(np.float32) if continuous else actions
    data = Dataset(observations, shown, actions.astype(float), ends, action_space=space)
    options = {**SMALL, "warmup_steps": 20, "learning_rate": 3e-3, "batch_size": 64}
    model = DecisionTransformer("MlpPolicy", data, **options).learn(250)
    assert model.target_return == 10
    for choice in range(3):
        model.target_return, state = 5.0 * choice, None
        for _ in range(steps):
            action, state = model.predict(np.zeros((8, 2), np.float32), state, deterministic=True)
            state = model.with_rewards(state, np.full(8, float(choice)))
            np.testing.assert_allclose(action.reshape(-1), choice, atol=0.3 if continuous else 0)


# -- gradient steps ----------------------------------------------------------------------------------------------------


def test_the_step_size_rises_at_first(numbers: Dataset, tmp_path: Any) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, learning_rate=1e-3, warmup_steps=10, **SMALL)
    rates: list[float] = []

    def note(names: Any, _: Any) -> bool:
        rates.append(float(names["self"].learner.optimizers["policy"].param_groups[0]["lr"]))
        return True

    model.learn(6, note)
    model.save(tmp_path / "model")
    resumed = DecisionTransformer.load(tmp_path / "model", env=numbers)
    resumed.learn(7, note, reset_num_timesteps=False)
    assert rates == pytest.approx([1e-3 * min(step / 10, 1) for step in range(1, 14)])


def test_without_warmup_and_with_a_schedule(numbers: Dataset) -> None:
    model = DecisionTransformer("MlpPolicy", numbers, learning_rate=lambda left: 1e-3 * left, warmup_steps=0, **SMALL)
    model.learn(4)
    assert float(model.learner.optimizers["policy"].param_groups[0]["lr"]) == pytest.approx(1e-3 / 4)


def test_the_optimizer(numbers: Dataset) -> None:
    optimizer = DecisionTransformer("MlpPolicy", numbers, **SMALL).learner.optimizers["policy"]
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["weight_decay"] == 1e-4


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_it_does_not_learn_by_acting(numbers: Dataset) -> None:
    with pytest.raises(ValueError, match="IQL"):
        DecisionTransformer("MlpPolicy", gym.make("CartPole-v1"))
    model = DecisionTransformer("MlpPolicy", collect("CartPole-v1", None, 60, seed=0), **SMALL)
    model.set_env(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="IQL"):
        model.learn(10)


@pytest.mark.parametrize("options", [{"gamma": 0.0}, {"policy_kwargs": {"context_length": 3}}])
def test_what_would_have_no_effect_is_refused(numbers: Dataset, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="context_length" if "policy_kwargs" in options else next(iter(options))):
        DecisionTransformer("MlpPolicy", numbers, **options)


@pytest.mark.parametrize("sizes", [{"n_heads": 3}, {"n_layers": 0}, {"dropout": 1.0}, {"width": 0}])
def test_bad_sizes(numbers: Dataset, sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(sizes))):
        DecisionTransformer("MlpPolicy", numbers, policy_kwargs=sizes)


def test_a_dataset_shorter_than_the_context() -> None:
    model = DecisionTransformer("MlpPolicy", recorded(ACTIONS["box"], 3), **{**SMALL, "context_length": 20})
    assert model.learn(3)._n_updates == 3
