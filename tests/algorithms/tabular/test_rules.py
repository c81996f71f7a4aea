"""Each rule against what its equation says, written out over whole episodes by other means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyak.algorithms.tabular import double_q_learning, dyna_q, monte_carlo_control, temporal_difference, traces
from polyak.algorithms.tabular.choosing import choose, expected, probability
from polyak.algorithms.tabular.walking import COIN, WIDTH, TableTransition

S, A, GAMMA, ALPHA, EPSILON = 5, 3, 0.9, 0.2, 0.3


class Episode:
    """Transitions that some policy made; the last may end it or be cut short."""

    def __init__(self, seed: int, length: int = 12, terminated: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.states, self.actions = rng.integers(S, size=length + 1), rng.integers(A, size=length + 1)
        self.chances, self.rewards = rng.uniform(0.2, 1, length + 1), rng.normal(size=length)
        self.terminated, self.length = terminated, length

    def moments(self, carries: bool = True, alpha: float = ALPHA) -> list[TableTransition]:
        found = []
        for t in range(self.length):
            last = t == self.length - 1
            terminated = last and self.terminated
            following = (int(self.actions[t + 1]), float(self.chances[t + 1]))
            found.append(
                TableTransition(
                    0,
                    int(self.states[t]),
                    int(self.actions[t]),
                    float(self.chances[t]),
                    float(self.rewards[t]),
                    int(self.states[t + 1]),
                    *(following if carries and not terminated else (-1, 1.0)),
                    terminated,
                    last,
                    alpha,
                    EPSILON,
                )
            )
        return found


def some_q(seed: int, tables: int = 1) -> np.ndarray:
    return np.random.default_rng(seed + 100).normal(size=(tables, S, A))


def pi(q: np.ndarray, state: int, epsilon: float) -> np.ndarray:
    """The epsilon-greedy policy; there are no ties in these tables."""
    chances = np.full(A, epsilon / A)
    chances[q[state].argmax()] += 1 - epsilon
    return chances


def window(q: np.ndarray, n: int, sigma: float, greedy: bool) -> temporal_difference.TableWithSteps:
    ints, floats = (np.zeros((1, n), np.int64) for _ in range(2)), (np.zeros((1, n)) for _ in range(2))
    legal, visits = np.ones((S, A), bool), np.zeros((1, S, A), np.int64)
    return temporal_difference.TableWithSteps(
        q, legal, visits, *ints, *floats, np.zeros(1, np.int64), GAMMA, sigma, greedy
    )


def run(rule: Any, held: Any, moments: list[TableTransition], draws: Any = None) -> None:
    for i, moment in enumerate(moments):
        rule(held, moment, np.zeros(WIDTH) if draws is None else draws[i])


# -- acting ------------------------------------------------------------------------------------------------------------


def test_choices_have_the_chances_that_they_say() -> None:
    q = np.array([[[1.0, 2.0, 2.0, 5.0]]])
    legal = np.array([[True, True, True, False]])
    rng, counts = np.random.default_rng(0), np.zeros(4)
    chances = {}
    for explores, which in rng.random((20_000, 2)):
        action, chance = choose(q, legal, 0, 0.3, explores, which)
        counts[action] += 1
        chances[action] = chance
    wanted = np.array([0.1, 0.45, 0.45, 0.0])
    assert np.all(np.abs(counts / 20_000 - wanted) <= 5 * np.sqrt(wanted / 20_000))
    assert [chances[a] for a in range(3)] == pytest.approx(wanted[:3])
    assert [probability(q, legal, 0, a, 0.3, True) for a in range(3)] == pytest.approx(wanted[:3])
    assert [probability(q, legal, 0, a, 0.0, False) for a in range(3)] == [0, 1, 1]
    assert expected(q, legal, 0, 0.3) == pytest.approx(0.3 * 5 / 3 + 0.7 * 2)


# -- temporal differences ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize(("sigma", "greedy"), [(1.0, False), (0.0, False), (0.0, True)])
def test_one_step(sigma: float, greedy: bool, terminated: bool) -> None:
    episode, q = Episode(0, terminated=terminated), some_q(0)
    ours = q.copy()
    run(temporal_difference.learn, window(ours, 1, sigma, greedy), episode.moments(carries=sigma > 0))
    table = q[0].copy()
    for t in range(episode.length):
        s, a, r, s2, a2 = (
            *(episode.states[t], episode.actions[t], episode.rewards[t]),
            *(episode.states[t + 1], episode.actions[t + 1]),
        )
        ahead = table[s2, a2] if sigma else table[s2].max() if greedy else pi(table, s2, EPSILON) @ table[s2]
        over = terminated and t == episode.length - 1
        table[s, a] += ALPHA * (r + GAMMA * (0 if over else ahead) - table[s, a])
    np.testing.assert_allclose(ours[0], table, atol=1e-12)


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("n", [2, 4, 20])
def test_n_step_sarsa(n: int, terminated: bool) -> None:
    """Sutton and Barto eq. 7.4 and 7.5: the horizon is cut at the end, and updates continue until the last state."""
    episode, q = Episode(1, terminated=terminated), some_q(1)
    ours = q.copy()
    run(temporal_difference.learn, window(ours, n, 1.0, False), episode.moments())
    table, end = q[0].copy(), episode.length
    for now in range(end + n - 1):
        tau = now - n + 1
        if tau < 0 or tau >= end:
            continue
        horizon = min(tau + n, end)
        target = sum(GAMMA ** (k - tau) * episode.rewards[k] for k in range(tau, horizon))
        if horizon < end or not terminated:
            target += GAMMA ** (horizon - tau) * table[episode.states[horizon], episode.actions[horizon]]
        cell = episode.states[tau], episode.actions[tau]
        table[cell] += ALPHA * (target - table[cell])
    np.testing.assert_allclose(ours[0], table, atol=1e-12)


def q_sigma(table: np.ndarray, episode: Episode, t: int, horizon: int, sigma: float, greedy: bool) -> float:
    """G_t:h from its definition, as a recursion from the front."""
    target = float(episode.rewards[t])
    if t + 1 == episode.length and episode.terminated:
        return target
    s, a = episode.states[t + 1], episode.actions[t + 1]
    policy = pi(table, s, 0.0 if greedy else EPSILON)
    later = table[s, a] if t + 1 == horizon else q_sigma(table, episode, t + 1, horizon, sigma, greedy)
    ratio = policy[a] / episode.chances[t + 1] if greedy else 1.0
    backup = policy @ table[s] - policy[a] * table[s, a] + policy[a] * later
    return target + GAMMA * (sigma * ratio * later + (1 - sigma) * backup)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("sigma", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("n", [1, 3])
def test_q_sigma_and_tree_backup(n: int, sigma: float, greedy: bool) -> None:
    episode, q = Episode(2, length=9), some_q(2)
    ours = q.copy()
    run(temporal_difference.learn, window(ours, n, sigma, greedy), episode.moments())
    table = q[0].copy()
    for now in range(episode.length + n - 1):
        tau = now - n + 1
        if 0 <= tau < episode.length:
            target = q_sigma(table, episode, tau, min(tau + n, episode.length), sigma, greedy)
            cell = episode.states[tau], episode.actions[tau]
            table[cell] += ALPHA * (target - table[cell])
    np.testing.assert_allclose(ours[0], table, atol=1e-12)


def test_importance_sampling_finds_the_greedy_policys_values() -> None:
    """The mean of sampled targets over the behaviour is the target that tree backup computes without sampling."""
    q, rng, mean = some_q(3), np.random.default_rng(0), 0.0
    draws, behaviour = 40_000, np.array([0.5, 0.3, 0.2])
    actions = rng.choice(A, size=draws, p=behaviour)
    for action, count in zip(*np.unique(actions, return_counts=True), strict=True):
        ours = q.copy()
        moment = TableTransition(0, 0, 0, 1.0, 1.0, 1, int(action), behaviour[action], False, True, 1.0, EPSILON)
        temporal_difference.learn(window(ours, 1, 1.0, True), moment, np.zeros(WIDTH))
        mean += ours[0, 0, 0] * count / draws
    assert mean == pytest.approx(1.0 + GAMMA * q[0, 1].max(), abs=5 * GAMMA * abs(q[0, 1].max()) * 2 / draws**0.5)


# -- traces ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("kind", traces.KINDS)
@pytest.mark.parametrize("watkins", [False, True])
def test_traces_over_the_whole_table(watkins: bool, kind: str, terminated: bool) -> None:
    """SARSA(lambda) and Watkins's Q(lambda), with an array of all traces. Sutton 1998 figures 7.11 and 7.14."""
    episode, q, lam = Episode(4, terminated=terminated), some_q(4), 0.8
    ours = q.copy()
    memory = np.zeros((1, S * A)), np.zeros((1, S * A), np.int64), np.zeros(1, np.int64)
    legal, visits = np.ones((S, A), bool), np.zeros((1, S, A), np.int64)
    sigma = 0.0 if watkins else 1.0
    held = traces.Traces(ours, legal, visits, *memory, GAMMA, sigma, watkins, lam, traces.KINDS.index(kind))
    run(traces.learn, held, episode.moments())
    table, trace = q[0].copy(), np.zeros((S, A))
    for t in range(episode.length):
        cell, s2, a2 = (episode.states[t], episode.actions[t]), episode.states[t + 1], episode.actions[t + 1]
        over = terminated and t == episode.length - 1
        ahead = table[s2].max() if watkins else table[s2, a2]
        delta = episode.rewards[t] + GAMMA * (0 if over else ahead) - table[cell]
        kept = {"accumulating": trace[cell], "replacing": 0.0, "dutch": (1 - ALPHA) * trace[cell]}[kind]
        trace[cell] = kept + 1
        is_greedy = table[s2].argmax() == a2
        table += ALPHA * delta * trace
        trace *= GAMMA * lam * (is_greedy if watkins else 1)
    np.testing.assert_allclose(ours[0], table, atol=1e-10)
    assert not held.counts.any()
    assert not held.traces.any()


# -- two tables --------------------------------------------------------------------------------------------------------


def test_double_q_learning_asks_the_other_table() -> None:
    episode, q = Episode(5), some_q(5, tables=2)
    ours, draws = q.copy(), np.random.default_rng(5).random((episode.length, WIDTH))
    held = double_q_learning.TwoTables(ours, np.ones((S, A), bool), np.zeros((2, S, A), np.int64), GAMMA)
    run(double_q_learning.learn, held, episode.moments(carries=False), draws)
    tables = q.copy()
    for t in range(episode.length):
        own, other = (tables[0], tables[1]) if draws[t, COIN] < 0.5 else (tables[1], tables[0])
        s, a, s2 = episode.states[t], episode.actions[t], episode.states[t + 1]
        ahead = 0 if t == episode.length - 1 else other[s2, own[s2].argmax()]
        own[s, a] += ALPHA * (episode.rewards[t] + GAMMA * ahead - own[s, a])
    np.testing.assert_allclose(ours, tables, atol=1e-12)
    assert held.visits.sum() == episode.length


# -- Monte Carlo -------------------------------------------------------------------------------------------------------


def record(every: bool, off_policy: bool) -> monte_carlo_control.TableWithEpisodes:
    ints, floats = (np.zeros((1, 50), np.int64) for _ in range(2)), (np.zeros((1, 50)) for _ in range(2))
    q, visits, totals = np.zeros((1, S, A)), np.zeros((1, S, A), np.int64), np.zeros((S, A))
    arrays = (q, np.ones((S, A), bool), visits, totals, np.zeros((S, A), np.int64), *ints, *floats)
    return monte_carlo_control.TableWithEpisodes(*arrays, np.zeros(1, np.int64), GAMMA, every, off_policy)


@pytest.mark.parametrize("every", [False, True])
def test_averages_of_returns(every: bool) -> None:
    episodes, held = [Episode(seed) for seed in range(20)], record(every, False)
    returns: dict[tuple[int, int], list[float]] = {}
    for episode in episodes:
        run(monte_carlo_control.learn, held, episode.moments(carries=False, alpha=-1.0))
        seen = set()
        for t in range(episode.length):
            cell = int(episode.states[t]), int(episode.actions[t])
            if every or cell not in seen:
                total = sum(GAMMA ** (k - t) * episode.rewards[k] for k in range(t, episode.length))
                returns.setdefault(cell, []).append(total)
            seen.add(cell)
    for cell, values in returns.items():
        assert held.q[0][cell] == pytest.approx(np.mean(values), abs=1e-12)
        assert held.visits[0][cell] == len(values)


def test_weighted_importance_sampling() -> None:
    """Sutton and Barto eq. 5.6 about a policy that does not change: sums of W G over sums of W, every visit."""
    policy = np.arange(S) % A
    held = record(True, True)
    sums, weights = np.zeros((S, A)), np.zeros((S, A))
    firm = np.arange(A) == policy[:, None]
    held.q[0], held.totals[:] = 1000.0 * firm, 1e30 * firm  # so that the policy stays greedy
    for seed in range(40):
        episode = Episode(seed, length=5)
        run(monte_carlo_control.learn, held, episode.moments(carries=False))
        for t in range(episode.length - 1, -1, -1):
            later = [policy[episode.states[k]] == episode.actions[k] for k in range(t + 1, episode.length)]
            if not all(later):
                break
            weight = np.prod([1 / episode.chances[k] for k in range(t + 1, episode.length)])
            total = sum(GAMMA ** (k - t) * episode.rewards[k] for k in range(t, episode.length))
            cell = episode.states[t], episode.actions[t]
            sums[cell] += weight * total
            weights[cell] += weight
            if policy[cell[0]] != cell[1]:
                assert held.q[0][cell] == pytest.approx(sums[cell] / weights[cell], abs=1e-9)
    assert (weights[~firm] > 0).any()
    np.testing.assert_allclose(held.totals[~firm], weights[~firm], rtol=1e-12)


def test_an_episode_that_is_cut_short_continues_from_the_table() -> None:
    episode, held = Episode(7, length=3, terminated=False), record(True, False)
    held.q[0] = np.arange(S * A).reshape(S, A)
    last = held.q[0, episode.states[3]].max()
    run(monte_carlo_control.learn, held, episode.moments(carries=False, alpha=1.0))
    cell = episode.states[2], episode.actions[2]
    assert held.q[0][cell] == pytest.approx(episode.rewards[2] + GAMMA * last) or cell in [
        (episode.states[k], episode.actions[k]) for k in range(2)
    ]


# -- Dyna --------------------------------------------------------------------------------------------------------------


def model(sweeps: bool, plans: int = 6) -> dyna_q.DynaTables:
    pairs = S * A
    none = [np.full(size, -1, np.int64) for size in (pairs, S, pairs, pairs)]
    return dyna_q.DynaTables(
        q=some_q(8),
        legal=np.ones((S, A), bool),
        visits=np.zeros((1, S, A), np.int64),
        successors=none[0],
        rewards=np.zeros(pairs),
        ends=np.zeros(pairs, bool),
        seen=np.zeros(S, np.int64),
        n_seen=np.zeros(1, np.int64),
        tried=np.zeros((S, A), np.int64),
        n_tried=np.zeros(S, np.int64),
        priorities=np.zeros(32),
        heads=none[1],
        nexts=none[2],
        before=none[3],
        gamma=GAMMA,
        n_plans=plans,
        sweeps=sweeps,
        threshold=1e-3,
    )


@pytest.mark.parametrize("sweeps", [False, True])
def test_the_model_is_the_last_outcome_and_knows_what_leads_where(sweeps: bool) -> None:
    held, last = model(sweeps), {}
    rng = np.random.default_rng(9)
    for seed in range(10):
        moments = Episode(seed).moments(carries=False)
        run(dyna_q.learn, held, moments, rng.random((len(moments), WIDTH + 12)))
        for moment in moments:
            last[moment.state * A + moment.action] = (moment.next_state, moment.reward, moment.terminated)
        for pair, outcome in last.items():
            assert (held.successors[pair], held.rewards[pair], held.ends[pair]) == outcome
        for state in range(S):
            pair, found = held.heads[state], set()
            while pair >= 0:
                found.add(int(pair))
                pair = held.nexts[pair]
            assert found == {pair for pair, outcome in last.items() if outcome[0] == state}
            assert set(held.tried[state, : held.n_tried[state]]) == {pair % A for pair in last if pair // A == state}
        assert set(held.seen[: held.n_seen[0]]) == {pair // A for pair in last}
        leaves = held.priorities[16 : 16 + S * A]
        assert held.priorities[1] == leaves.max()
        assert dyna_q.most_urgent(held) == (leaves.argmax() if leaves.max() > 0 else -1)


def test_planning_takes_the_steps_that_are_drawn() -> None:
    held, plain = model(False, plans=1), model(False, plans=0)
    draws = np.zeros((2, WIDTH + 2))
    moments = Episode(10, length=2).moments(carries=False)
    run(dyna_q.learn, plain, moments, draws)
    run(dyna_q.learn, held, moments, draws)
    table = some_q(8)[0]
    first, second = moments
    for moment in (first, first, second, first):  # each step, then the one that was seen first
        ahead = 0 if moment.terminated else table[moment.next_state].max()
        cell = moment.state, moment.action
        table[cell] += ALPHA * (moment.reward + GAMMA * ahead - table[cell])
    np.testing.assert_allclose(held.q[0], table, atol=1e-12)
    assert not np.array_equal(held.q, plain.q)
