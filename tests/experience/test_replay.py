"""From cells to batches: n-step returns, sequences and hindsight, in numpy and in torch, against loops over rows."""

import copy

import numpy as np
import pytest
import torch

from polyak.experience import GoalRelabel, Prioritized, Replay, Uniform
from tests.experience.test_ring import LIBRARIES, N_ENVS, array, ring_of, rows_of

GAMMA = 0.9


def replay_of(rows, size, device, sampler=None, share_frames=False, relabelled=None, **options):
    ring = ring_of(rows[:1], size, device, share_frames=share_frames)
    ring.clear()
    relabel = None if relabelled is None else GoalRelabel(ring, _reward, np.random.RandomState(2), **relabelled)
    replay = Replay(ring, sampler or Uniform(), GAMMA, relabel=relabel, **options)
    for row in rows:
        replay.append(row)
    return replay


def _reward(achieved, desired):
    return -1.0 * (achieved != desired)[..., 0]


def window_of(rows, t, env, most):
    """Times from t on that belong to the same episode."""
    times = [t]
    while len(times) < most and not _ended(rows[times[-1]], env) and times[-1] + 1 < len(rows):
        times.append(times[-1] + 1)
    return times


def _ended(row, env):
    return row["terminated"][env] or row["truncated"][env]


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize("share_frames", [False, True])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_returns_end_with_the_episode_or_the_newest_row(device, share_frames, n_steps):
    rows = rows_of(33)
    replay = replay_of(rows, 12, device, share_frames=share_frames, n_steps=n_steps)
    times = np.repeat(np.arange(33 - replay.ring.filled, 33), N_ENVS)
    envs = np.tile(np.arange(N_ENVS), replay.ring.filled)
    batch = replay.batch(times % 12 * N_ENVS + envs)
    assert batch.lead == times.shape
    for i, (t, env) in enumerate(zip(times, envs, strict=True)):
        inside = window_of(rows, t, env, n_steps)
        last = rows[inside[-1]]
        expected = sum(GAMMA**k * float(rows[u]["rewards"][env]) for k, u in enumerate(inside))
        discount = 0 if last["terminated"][env] else GAMMA ** len(inside)
        # sums of at most 3 float32 terms of size < 10, rounded to float32
        assert float(batch.rewards[i]) == pytest.approx(expected, abs=1e-5)
        assert float(batch.discounts[i]) == pytest.approx(discount, abs=1e-6)
        assert np.array_equal(array(batch.observations)[i], rows[t]["observations"][env])
        assert np.array_equal(array(batch.next_observations)[i], last["next_observations"][env])


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize(("n_steps", "burn_in"), [(1, 0), (1, 2), (2, 1)])
def test_sequences_stay_in_their_episode(device, n_steps, burn_in):
    rows, length = rows_of(40), 3
    replay = replay_of(rows, 40, device, n_steps=n_steps, length=length, burn_in=burn_in)
    times, envs = np.repeat(np.arange(40), N_ENVS), np.tile(np.arange(N_ENVS), 40)
    batch = replay.batch(times * N_ENVS + envs)
    assert batch.lead == (len(times), burn_in + length)
    valid, observations = array(batch.valid), array(batch.observations)
    for i, (t, env) in enumerate(zip(times, envs, strict=True)):
        for place in range(burn_in + length):
            u = t - burn_in + place
            between = range(min(u, t), max(u, t))  # rows that must not end an episode
            inside = 0 <= u < 40 and not any(_ended(rows[v], env) for v in between)
            assert valid[i, place] == inside
            if inside:
                expected = sum(
                    GAMMA**k * rows[v]["rewards"][env] for k, v in enumerate(window_of(rows, u, env, n_steps))
                )
                assert float(batch.rewards[i, place]) == pytest.approx(float(expected), abs=1e-5)
                assert np.array_equal(observations[i, place], rows[u]["observations"][env])
            else:
                assert float(batch.rewards[i, place]) == float(batch.discounts[i, place]) == 0


def test_numpy_and_torch_give_the_same_batches():
    rows = rows_of(50)
    batches = []
    for device in LIBRARIES:
        sampler = Uniform()
        sampler.seed(3)
        batches.append(replay_of(rows, 20, device, sampler, n_steps=2).sample(64))
    ours, theirs = batches
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(array(ours[name]), array(theirs[name])) for name in ours)


def test_drawing_changes_nothing_and_can_be_resumed():
    sampler = Uniform()
    sampler.seed(1)
    replay = replay_of(rows_of(30), 20, "cpu", sampler, n_steps=2)
    before = {name: array(column).copy() for name, column in replay.ring.all().items()}
    state = copy.deepcopy(replay.state())
    first = replay.sample(16)
    replay.load_state(state)
    assert torch.equal(first.rewards, replay.sample(16).rewards)
    assert all(np.array_equal(array(column), before[name]) for name, column in replay.ring.all().items())


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize("length", [None, 2])
def test_priorities_follow_errors(device, length):
    rows = rows_of(30)
    sampler = Prioritized()
    sampler.seed(0)
    replay = replay_of(rows, 30, device, sampler, length=length)
    for _ in range(60):
        batch = replay.sample(32)
        first = array(batch.actions)[:, 0] if length is None else array(batch.actions)[:, 0, 0]
        replay.update_priorities(replay.ring.index(np.where(first == 2, 100.0, 1e-3)))
    batch = replay.sample(64)
    assert batch.weights.shape == batch.lead
    drawn = array(batch.actions)[:, 0] if length is None else array(batch.actions)[:, 0, 0]
    assert (drawn == 2).mean() > 0.5  # a fifth of the rows


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize("share_frames", [False, True])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_in_hindsight_are_those_of_the_episode(device, share_frames, strategy):
    rows = rows_of(60, goals=True)
    relabelled = {"share": 0.75, "strategy": strategy}
    replay = replay_of(rows, 30, device, share_frames=share_frames, relabelled=relabelled)
    achieved = {
        float(row["next_observations"]["achieved_goal"][n, 0]): (t, n)
        for t, row in enumerate(rows)
        for n in range(N_ENVS)
    }
    seen = {
        float(row["observations"]["observation"][n, 0]): (t, n) for t, row in enumerate(rows) for n in range(N_ENVS)
    }
    batch = replay.sample(200)
    goals, observed = array(batch.observations["desired_goal"])[:, 0], array(batch.observations["observation"])[:, 0]
    assert np.array_equal(goals, array(batch.next_observations["desired_goal"])[:, 0])
    assert (goals[150:] == -1).all()  # the last quarter keeps its own
    assert np.array_equal(array(batch.rewards)[150:], [rows[seen[o][0]]["rewards"][seen[o][1]] for o in observed[150:]])
    for i in range(150):
        t, env = seen[float(observed[i])]
        goal_t, goal_env = achieved[float(goals[i])]
        assert goal_env == env
        low, high = sorted((t, goal_t))
        assert not any(_ended(rows[u], env) for u in range(low, high))  # the same episode
        assert strategy == "episode" or goal_t >= t
        assert strategy != "final" or _ended(rows[goal_t], env)
        assert float(batch.rewards[i]) == (0.0 if goal_t == t else -1.0)


def test_numbers_out_of_range_are_refused():
    rows = rows_of(3)
    with pytest.raises(ValueError, match="n_steps=0"):
        replay_of(rows, 8, None, n_steps=0)
    with pytest.raises(ValueError, match="burn_in=2"):
        replay_of(rows, 8, None, burn_in=2)
    replay = replay_of(rows, 8, None)
    replay.ring.clear()
    with pytest.raises(ValueError, match="nothing to draw"):
        replay.sample(2)
    with pytest.raises(ValueError, match="does not fit"):
        replay_of(rows, 2, None, n_steps=3).sample(1)
