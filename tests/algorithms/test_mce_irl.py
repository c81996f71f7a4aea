"""Maximum causal entropy IRL: planning against enumeration, and the expert's features on a grid."""

from __future__ import annotations

from itertools import product

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.algorithms.mce_irl import MCEIRL, demonstrated_occupancy, occupancy, soft_value_iteration, tabular_model
from polyak.envs import with_reward
from polyak.experience import Dataset, collect
from tests.tolerance import bound, sampling
from tests.worlds import World

SIZE = 8


def world(seed: int = 0, size: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random transitions [S, 2, S], rewards [S] and first states [S]."""
    rng = np.random.default_rng(seed)
    return (
        torch.from_numpy(rng.dirichlet(np.ones(size), (size, 2))),
        torch.from_numpy(rng.normal(size=size)),
        torch.from_numpy(rng.dirichlet(np.ones(size))),
    )


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Transitions [64, 4, 64] of an 8 x 8 grid where a tenth of the steps goes elsewhere, and the first state."""
    transitions = np.zeros((SIZE, SIZE, 4, SIZE, SIZE))
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    for x, y, a in product(range(SIZE), range(SIZE), range(4)):
        for b, (dx, dy) in enumerate(moves):
            to = np.clip(x + dx, 0, SIZE - 1), np.clip(y + dy, 0, SIZE - 1)
            transitions[(x, y, a, *to)] += 0.9 if a == b else 0.1 / 3
    return transitions.reshape(SIZE**2, 4, SIZE**2), np.eye(SIZE**2)[0]


class Grid(World):
    """An environment of those tables."""

    observation_space, action_space, truncates = spaces.Discrete(SIZE**2), spaces.Discrete(4), True
    transitions, initial = grid()

    def begin(self) -> None:
        self.state = int(self.np_random.choice(SIZE**2, p=self.initial))

    def look(self) -> int:
        return self.state

    def act(self, action: int) -> float:
        self.state = int(self.np_random.choice(SIZE**2, p=self.transitions[self.state, action]))
        return 0.0


def test_where_nothing_is_random_values_sum_over_all_trajectories() -> None:
    """V(s_0) = log sum over action sequences of exp(sum of rewards)."""
    rng = np.random.default_rng(1)
    then, reward, gamma, horizon = rng.integers(3, size=(3, 2)), rng.normal(size=3), 0.8, 4
    plan = soft_value_iteration(torch.from_numpy(np.eye(3)[then]), torch.from_numpy(reward), 1.0, horizon)
    for start in range(3):
        totals, firsts = [], []
        for actions in product(range(2), repeat=horizon):
            state, total = start, 0.0
            for action in actions:
                total, state = total + reward[state], then[state, action]
            totals.append(total)
            firsts.append(actions[0])
        weights = np.exp(totals)
        assert plan.values[start].item() == pytest.approx(np.log(weights.sum()), rel=1e-12)
        assert plan.policy[0, start, 1].item() == pytest.approx(weights[np.array(firsts) == 1].sum() / weights.sum())
    assert gamma < 1


@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_values_are_rewards_and_entropy_of_all_trajectories_and_no_policy_has_more(gamma: float) -> None:
    transitions, reward, initial = world()
    horizon = 3
    plan = soft_value_iteration(transitions, reward, gamma, horizon)

    def worth(policy: torch.Tensor) -> tuple[float, np.ndarray]:
        """By enumeration: expected discounted rewards and causal entropy, and occupancy [S]."""
        total, visits = 0.0, np.zeros(3)
        for states in product(range(3), repeat=horizon + 1):
            for actions in product(range(2), repeat=horizon):
                chance, gain, seen = float(initial[states[0]]), 0.0, np.zeros(3)
                for t, action in enumerate(actions):
                    here = policy[t, states[t], action]
                    gain += gamma**t * float(reward[states[t]] - here.log())
                    chance *= float(here * transitions[states[t], action, states[t + 1]])
                    seen[states[t]] += gamma**t
                total, visits = total + chance * gain, visits + chance * seen
        return total, visits

    best, visits = worth(plan.policy)
    assert best == pytest.approx(float(initial @ plan.values), rel=1e-10)
    np.testing.assert_allclose(occupancy(transitions, plan.policy, initial, gamma), visits, rtol=1e-10)
    rng = np.random.default_rng(2)
    for _ in range(5):
        other = torch.softmax(plan.policy.log() + 0.3 * torch.from_numpy(rng.normal(size=(horizon, 3, 2))), 2)
        assert worth(other)[0] < best


def test_for_ever_is_a_horizon_that_is_long_enough() -> None:
    transitions, reward, initial = world(3, size=4)
    forever = soft_value_iteration(transitions, reward, 0.8, None)
    long = soft_value_iteration(transitions, reward, 0.8, 200)
    torch.testing.assert_close(forever.values, long.values, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(forever.policy, long.policy[0], rtol=1e-10, atol=1e-10)
    visits = occupancy(transitions, forever.policy, initial, 0.8)
    torch.testing.assert_close(visits, occupancy(transitions, long.policy, initial, 0.8), rtol=1e-10, atol=1e-10)
    assert visits.sum().item() == pytest.approx(5.0)


def test_the_gradient_of_the_values_is_the_occupancy() -> None:
    """What L-BFGS is told is the gradient of what it minimises."""
    transitions, reward, initial = world(4)
    reward.requires_grad_()
    for gamma, horizon in ((1.0, 5), (0.6, None)):
        plan = soft_value_iteration(transitions, reward, gamma, horizon)
        (gradient,) = torch.autograd.grad(initial @ plan.values, reward)
        expected = occupancy(transitions, plan.policy.detach(), initial, gamma)
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("gamma", "horizon"), [(1.0, 20), pytest.param(0.9, None, marks=pytest.mark.slow)])
def test_the_experts_features_are_met_on_a_grid(gamma: float, horizon: int | None) -> None:
    transitions, initial = grid()
    rng = np.random.default_rng(0)
    features = np.concatenate([np.eye(SIZE)[np.arange(64) // SIZE], np.eye(SIZE)[np.arange(64) % SIZE]], 1)
    true = features @ rng.normal(size=16)
    tables = torch.from_numpy(transitions), torch.from_numpy(initial)
    expert = soft_value_iteration(tables[0], torch.from_numpy(true), gamma, horizon)
    visits = occupancy(tables[0], expert.policy, tables[1], gamma)
    for given in (features, None):
        model = MCEIRL(transitions, initial, given, horizon=horizon, gamma=gamma)
        before = (model.mean_features() - visits @ model.features).abs().max()
        model.learn(visits.numpy())
        assert before > 0.1
        assert (model.mean_features() - visits @ model.features).abs().max() < 1e-3
        assert model.gap < 1e-3
        if given is not None:  # with all occupancies met, the behaviour is the expert's own
            met = occupancy(tables[0], model.policy, tables[1], gamma)
            assert (met - visits).abs().max() < 0.05 * visits.max()


def test_demonstrations_on_the_grid_are_met_and_the_reward_wraps_an_environment() -> None:
    transitions, initial = grid()
    goal = torch.zeros(64, dtype=torch.float64)
    goal[-1] = 3.0
    teacher = MCEIRL(transitions, initial, horizon=25)
    teacher.weights = goal
    teacher._plan()
    torch.manual_seed(0)
    shown = collect(Grid(length=25), teacher, 25 * 20, whole_episodes=True, seed=0)
    model = MCEIRL(transitions, initial, horizon=25, weight_decay=1e-3).learn(shown)
    expert = demonstrated_occupancy(shown, 64, 1.0, 25)
    assert expert.sum().item() == pytest.approx(25)
    gap = model.mean_features() - expert + 1e-3 * model.weights
    assert gap.abs().max() < 1e-3
    assert model.state_rewards.argmax() == 63
    exact = occupancy(teacher.transitions, teacher.policy, teacher.initial, 1.0)
    assert abs(float(expert[63] - exact[63])) < sampling(20, 25.0)

    env = with_reward(Grid(length=25), model.reward)
    state, _ = env.reset(seed=0)
    for _ in range(5):
        before = state
        state, reward, *_ = env.step(0)
        assert reward == pytest.approx(model.state_rewards[before], abs=bound(64, 10.0))


def test_an_episode_that_ends_stays_where_it_ended() -> None:
    shown = Dataset([0, 1, 2, 0, 1, 1], [0, 0, 1, 1], np.zeros(4), [False, True, False, False], [False] * 4)
    assert demonstrated_occupancy(shown, 3, 1.0, 2).tolist() == [1.0, 1.0, 0.0]
    ended = shown.select([0])
    assert demonstrated_occupancy(ended, 3, 1.0, 5).tolist() == [1.0, 1.0, 3.0]
    assert demonstrated_occupancy(ended, 3, 0.5, None).tolist() == [1.0, 0.5, 0.5]
    assert demonstrated_occupancy(shown.select([1]), 3, 0.5, None).sum().item() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="horizon=3 cannot be used: episode 1 was cut short after 2 steps"):
        demonstrated_occupancy(shown, 3, 1.0, 3)


def test_gymnasiums_tables_are_read() -> None:
    transitions, initial = tabular_model(gym.make("FrozenLake-v1"))
    assert transitions.shape == (16, 4, 16)
    np.testing.assert_allclose(transitions.sum(2), 1)
    assert transitions[15, :, 15].tolist() == [1, 1, 1, 1]
    assert initial[0] == 1
    with pytest.raises(ValueError, match="has no table of its own"):
        tabular_model(gym.make("CartPole-v1"))


def test_it_acts_by_its_plan() -> None:
    transitions, initial = grid()
    timed, forever = MCEIRL(transitions, initial, horizon=3), MCEIRL(transitions, initial, gamma=0.9)
    timed.policy = torch.eye(4, dtype=torch.float64)[:3][:, None].expand(3, 64, 4)  # action t at time t
    state = None
    for t in range(3):
        actions, state = timed.predict(np.array([5, 6]), state, np.array([t == 0, True]))
        assert actions.tolist() == [t, 0]
    action, none = forever.predict(7, deterministic=True)
    assert none is None
    assert Grid.action_space.contains(int(action))


def test_bad_arguments_are_named() -> None:
    transitions, initial = grid()
    for options, words in (
        ({"transitions": transitions[:, :, :5]}, "transitions="),
        ({"transitions": 2 * transitions}, "transitions="),
        ({"initial": initial[:5]}, "initial="),
        ({"features": np.ones((3, 2))}, "features="),
        ({"horizon": 0}, "horizon=0"),
        ({"gamma": 1.0}, "gamma=1.0"),
    ):
        arguments = {"transitions": transitions, "initial": initial, "gamma": 0.9, **options}
        with pytest.raises(ValueError, match=words):
            MCEIRL(**arguments)  # type: ignore[arg-type]
    model = MCEIRL(transitions, initial, gamma=0.9)
    with pytest.raises(ValueError, match="demonstrations="):
        model.learn(collect("CartPole-v1", None, 10))
    with pytest.warns(UserWarning, match="still .* from where it should be"):
        MCEIRL(transitions, initial, gamma=0.9, max_iterations=2).learn(np.eye(64)[5] * 10)
