"""BCQ for discrete actions: against tables that can be enumerated."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import BCQ, DQN
from polyak.algorithms.bcq import BCQLearner, imitation_loss, logit_penalty
from polyak.experience import Dataset, Transition
from polyak.nn.policies.constrained import ConstrainedPolicy, likely
from tests.worlds import World

STATES, ACTIONS, GAMMA = 5, 3, 0.9
TABLE: dict[str, Any] = {
    "policy_kwargs": {"net_arch": []},
    "normalize_observations": False,
    "gamma": GAMMA,
    "device": "cpu",
    "seed": 0,
}


def walk(n: int = 3_000, episode: int = 20) -> Dataset:
    """States on a ring: action 0 stays, 1 goes on, 2 goes back. What is paid depends on the state; going back is
    hardly ever recorded, and never in state 0, though it would pay best."""
    rng = np.random.default_rng(0)
    states, actions, rewards, ends = [], [], [], []
    state = 0
    for t in range(n):
        chances = [0.5, 0.5, 0.0] if state == 0 else [0.6, 0.38, 0.02]
        action = rng.choice(ACTIONS, p=chances)
        states.append(state)
        actions.append(action)
        rewards.append(float(state == 3) + 2.0 * (action == 2))
        state = (state + (0, 1, -1)[action]) % STATES
        ends.append(t % episode == episode - 1)
        if ends[-1]:
            states.append(state)
            state = int(rng.integers(STATES))
    seen = np.eye(STATES, dtype=np.float32)[states]
    return Dataset(
        seen,
        np.array(actions),
        np.array(rewards),
        np.zeros(n, bool),
        np.array(ends),
        observation_space=spaces.Box(0, 1, (STATES,), np.float32),
        action_space=spaces.Discrete(ACTIONS),
    )


@pytest.fixture(scope="module")
def recorded() -> Dataset:
    return walk()


def with_tables(model: BCQ, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Fill the three tables with random numbers: values, lagging values and logits, [S, A] each."""
    rng = np.random.default_rng(seed)
    policy = model.policy
    tables = []
    for head in (policy.q_net.q_net, policy.q_net_target.q_net, policy.q_net.imitator):
        table = rng.normal(size=(STATES, ACTIONS)).astype(np.float32)
        with torch.no_grad():
            head[0].weight.copy_(torch.from_numpy(table.T))
            head[0].bias.zero_()
        tables.append(table)
    return tuple(tables)


def chances(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits)
    return weights / weights.sum(-1, keepdims=True)


def best_likely(values: np.ndarray, logits: np.ndarray, threshold: float) -> int:
    """By the definition, one action after another."""
    g = chances(logits)
    candidates = [a for a in range(len(g)) if g[a] / g.max() >= threshold]
    return max(candidates, key=lambda a: values[a])


def test_which_actions_are_likely() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(scale=2, size=(200, 4)))
    probs = chances(logits.numpy())
    for threshold in (0.0, 0.1, 0.3, 1.0):
        found = likely(logits, torch.tensor(threshold))
        np.testing.assert_array_equal(found.numpy(), probs / probs.max(1, keepdims=True) >= threshold)
    assert likely(logits, torch.tensor(0.0)).all()
    assert (likely(logits, torch.tensor(1.0)).sum(1) == 1).all()


def test_what_masks_forbid_is_not_likely_and_says_nothing_of_the_others() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.5, -3.0]])
    masks = torch.tensor([[False, True, True, True]])
    assert likely(logits, torch.tensor(0.3), masks).tolist() == [[False, True, True, False]]
    assert likely(logits, torch.tensor(0.0), masks).tolist() == [[False, True, True, True]]


def test_losses_against_their_definitions() -> None:
    rng = np.random.default_rng(0)
    logits, actions, weights = rng.normal(size=(6, 4)), rng.integers(4, size=6), rng.uniform(size=6)
    given = torch.from_numpy(logits), torch.from_numpy(actions), torch.from_numpy(weights)
    expected = -np.mean(weights * np.log(chances(logits)[np.arange(6), actions]))
    assert imitation_loss(*given).item() == pytest.approx(expected)
    assert logit_penalty(given[0], given[2]).item() == pytest.approx(np.mean(weights[:, None] * logits**2))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_targets_against_enumeration(recorded: Dataset, double: bool, threshold: float) -> None:
    model = BCQ("MlpPolicy", recorded, double=double, threshold=threshold, **TABLE)
    values, lagging, logits = with_tables(model)
    batch = Transition.from_samples(model.data_buffer.sample(256), GAMMA)
    then = batch.next_observations.argmax(1).numpy()
    chosen_by = values if double else lagging
    backups = [lagging[s][best_likely(chosen_by[s], logits[s], threshold)] for s in then]
    expected = batch.rewards.numpy() + batch.discounts.numpy() * np.array(backups, np.float32)
    assert isinstance(model.learner, BCQLearner)
    # a product and a sum of numbers below 8, in float32
    np.testing.assert_allclose(model.learner.td_target(batch).numpy(), expected, rtol=0, atol=8e-6)
    if threshold == 0:
        dqn = DQN("MlpPolicy", recorded, double=double, policy_kwargs={"net_arch": []}, gamma=GAMMA, device="cpu")
        for ours, theirs in ((model.policy.q_net, dqn.q_net), (model.policy.q_net_target, dqn.q_net_target)):
            theirs.load_state_dict({k: v for k, v in ours.state_dict().items() if "imitator" not in k})
        torch.testing.assert_close(model.learner.td_target(batch), dqn.learner.td_target(batch), rtol=0, atol=0)


def test_the_loss_is_the_sum_of_three(recorded: Dataset) -> None:
    model = BCQ("MlpPolicy", recorded, logit_coef=0.5, **TABLE)
    values, _, logits = with_tables(model)
    batch = Transition.from_samples(model.data_buffer.sample(64), GAMMA)
    learner: Any = model.learner
    target = learner.td_target(batch)
    states, actions = batch.observations.argmax(1).numpy(), batch.actions[:, 0].long().numpy()
    error = np.abs(values[states, actions] - target.numpy())
    huber = np.where(error < 1, error**2 / 2, error - 0.5).mean()
    imitation = -np.log(chances(logits)[states, actions]).mean()
    expected = huber + imitation + 0.5 * (logits[states] ** 2).mean()
    assert learner.objective(batch, learner.predicted(batch), target).loss.item() == pytest.approx(expected, rel=1e-5)


def test_it_acts_among_likely_actions(recorded: Dataset) -> None:
    model = BCQ("MlpPolicy", recorded, **TABLE)
    values, _, logits = with_tables(model)
    for threshold in (0.0, 0.3, 0.7, 1.0):
        model.threshold = threshold
        chosen, _ = model.predict(np.eye(STATES, dtype=np.float32), deterministic=True)
        assert chosen.tolist() == [best_likely(values[s], logits[s], threshold) for s in range(STATES)]
    assert chosen.tolist() == logits.argmax(1).tolist()


def test_masks_come_before_the_threshold(recorded: Dataset) -> None:
    model = BCQ("MlpPolicy", recorded, threshold=0.3, **TABLE)
    values, _, logits = with_tables(model)
    for forbidden in range(ACTIONS):
        allowed = [a for a in range(ACTIONS) if a != forbidden]
        masks = np.arange(ACTIONS) != forbidden
        chosen, _ = model.predict(
            np.eye(STATES, dtype=np.float32), deterministic=True, action_masks=np.tile(masks, (STATES, 1))
        )
        expected = [allowed[best_likely(values[s, allowed], logits[s, allowed], 0.3)] for s in range(STATES)]
        assert chosen.tolist() == expected


@pytest.mark.slow
def test_it_learns_the_values_of_the_constrained_problem(recorded: Dataset) -> None:
    """Q-iteration over the actions that the data find likely, with the recorded means, is what it must come to."""
    rows = recorded.transitions()
    now, then = rows.observations.argmax(1), rows.next_observations.argmax(1)
    counts = np.zeros((STATES, ACTIONS))
    np.add.at(counts, (now, rows.actions), 1)
    candidates = counts / counts.max(1, keepdims=True) >= 0.3
    assert not candidates[:, 2].any(), "going back is unlikely everywhere"
    reward, follows = np.zeros((STATES, ACTIONS)), np.zeros((STATES, ACTIONS), int)
    reward[now, rows.actions], follows[now, rows.actions] = rows.rewards, then
    exact = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        exact = reward + GAMMA * np.where(candidates, exact, -np.inf).max(1)[follows]
    model = BCQ("MlpPolicy", recorded, learning_rate=lambda left: 0.03 * left, **{**TABLE, "tau": 0.05}).learn(2_000)
    states = torch.eye(STATES)
    with torch.no_grad():
        values, logits = model.policy.q_net.both(states).unbind(1)
    # of state-action pairs that a minibatch of 64 seldom has less than once; 0.3 are 5 % of the values' size
    often = counts > len(recorded) / 64
    np.testing.assert_allclose(values.numpy()[often], exact[often], atol=0.3)
    found = likely(logits, torch.tensor(0.3)).numpy()
    np.testing.assert_array_equal(found, candidates)
    chosen, _ = model.predict(states.numpy(), deterministic=True)
    assert chosen.tolist() == np.where(candidates, exact, -np.inf).argmax(1).tolist()


class Ring(World):
    """The spaces of the data; says what it was asked to do."""

    observation_space, action_space = spaces.Box(0, 1, (STATES,), np.float32), spaces.Discrete(ACTIONS)

    def begin(self) -> None:
        self.state = int(self.np_random.integers(STATES))

    def look(self) -> np.ndarray:
        return np.eye(STATES, dtype=np.float32)[self.state]

    def act(self, action: int) -> float:
        self.asked.append((self.state, int(action)))
        self.begin()
        return 0.0


def test_acting_on_it_keeps_to_likely_actions(recorded: Dataset) -> None:
    options = {**TABLE, "learning_rate": 0.0, "exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
    model = BCQ("MlpPolicy", recorded, **options)
    values, _, logits = with_tables(model)
    env = Ring(asked=[])
    model.set_env(env)
    model.learn(40)
    assert len(env.asked) == 40
    assert all(action == best_likely(values[s], logits[s], 0.3) for s, action in env.asked)


@pytest.mark.parametrize("options", [{"dueling": True}, {"noisy": True}, {"n_steps": 3}, {"prioritized": True}])
def test_extensions_of_dqn(recorded: Dataset, options: dict[str, Any]) -> None:
    model = BCQ("MlpPolicy", recorded, policy_kwargs={"net_arch": [8]}, device="cpu", **options).learn(20)
    assert isinstance(model.policy, ConstrainedPolicy)
    assert not any("Noisy" in type(module).__name__ for module in model.q_net.imitator.modules())


def test_refusals(recorded: Dataset) -> None:
    with pytest.raises(ValueError, match="munchausen=True"):
        BCQ("MlpPolicy", recorded, munchausen=True, double=False)
    with pytest.raises(ValueError, match="threshold"):
        BCQ("MlpPolicy", recorded, threshold=1.5)
    with pytest.raises(ValueError, match="threshold"):
        BCQ("MlpPolicy", recorded, policy_kwargs={"threshold": 0.5})
