"""Every combination of sampler, n-step, hindsight, space and storage against brute force on the recorded experience."""

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.experience import (
    DictReplayBuffer,
    Hindsight,
    NStepReplayBuffer,
    Prioritized,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayBufferSamples,
    Transition,
    TransitionRows,
    placement,
)
from polyak.experience.batch import gathered
from tests.pairs import pairwise
from tests.tolerance import bound

GAMMA = 0.9
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
SAMPLERS = ["uniform", "prioritized", "rank_based"]
ENVS, SAVING, CAPACITY = [1, 2], [False, True], [12, 100]
PLAIN = itertools.product(["box", "stack", "mixed"], SAMPLERS[:2], [1, 3], [False], SAVING, CAPACITY, ENVS)
GOAL = itertools.product(["goal"], SAMPLERS, [1, 3, (2, 4)], [False, True], SAVING, CAPACITY, ENVS)
WAYS: dict[str, dict[str, Any]] = {
    "samples": {"storage_device": "cpu"},
    "together": {"storage_device": "cpu"},
    "late": {"storage_device": "cpu"},
    "mirror": {},
    "tensors": {"in_tensors": True},
    "late tensors": {"in_tensors": True},
}
"""By what minibatches are made -> how the buffer is built."""


def make(data, capacity=200, **keywords):
    return ReplayBuffer(capacity, data.space, data.action_space, "cpu", data.n_envs, **keywords)


@pytest.mark.parametrize(
    ("kind", "sampler", "n", "her", "saving", "capacity", "n_envs"), [*pairwise(PLAIN), *pairwise(GOAL)]
)
def test_minibatches_are_what_happened(
    experience, compare, goal_env, monkeypatch, kind, sampler, n, her, saving, capacity, n_envs
):
    """Against the record, and by whatever way they are made: the same bits from the same random numbers."""
    monkeypatch.setattr(placement, "UPLOADS_PER_ROW", np.inf)
    monkeypatch.setattr(placement.Placement, "_affordable", lambda self, device, needed: True)
    data = experience(kind, steps=60, n_envs=n_envs, breaks=0 if her else 0.1)
    keywords = {"optimize_memory_usage": saving, "sampler": sampler, "n_steps": n, "gamma": GAMMA, "seed": 0}
    buffers = {
        way: make(data, capacity * n_envs, relabel=Hindsight(goal_env) if her else None, **keywords, **options)
        for way, options in WAYS.items()
    }
    lengths, seen = set(), set()
    for start, stop, rows_at_once in (
        (0, 20, 1000),
        (20, 45, 1),
        (45, 60, 70),
    ):  # partly filled, wrapped, wrapped again
        for name in ("BLOCK_BYTES", "DEVICE_BLOCK_BYTES"):
            size = rows_at_once * buffers["samples"].storage.row_bytes
            monkeypatch.setattr(f"polyak.experience.sampling.pipeline.{name}", size)
        data.steps = stop
        for buffer in buffers.values():
            data.fill(buffer, start, stop)
        samples, expected = one_by_one(buffers["samples"], 3)
        for way, buffer in buffers.items():
            if way != "samples":
                check_equal(drawn(buffer, 3, way.startswith("late")), expected, way.startswith("late") and n != 1)
        for batch in samples:
            assert (batch.discounts is None) == (n == 1)
            assert (batch.weights is None) == (sampler == "uniform")
            for t, env, length in check(batch, data, buffers["samples"], n, her, *compare):
                assert t >= stop - capacity
                seen.add((t, env))
                lengths.add(length)
    assert len(seen) > 20
    assert isinstance(n, int) or lengths == {1, 2, 3, 4}
    mirror = buffers["mirror"]._placement._mirror
    assert (mirror is None) == her, "what is relabelled is gathered in main memory"


def check(batch, data, buffer, n, her, rows_of, same):
    """Compare samples with the record; yields the time, the environment, and how many steps each spans."""
    obs, then = rows_of(batch.observations), rows_of(batch.next_observations)
    for i in range(len(batch.rewards)):
        t, env = data.find(batch.actions[i].numpy())
        times = data.window(t, env, n if isinstance(n, int) else n[1])
        if not isinstance(n, int):  # as many as were drawn
            length = round(np.log(batch.discounts[i].item()) / np.log(GAMMA))
            assert min(n[0], len(times)) <= length <= len(times)
            times = times[:length]
        last = data.rows[times[-1]]
        expected, final = data.rows[t]["obs"][env], last["next_obs"][env]
        rewards = [data.rows[k]["reward"][env] for k in times]
        if her:
            goal = obs[i]["desired_goal"]
            expected, final = expected | {"desired_goal": goal}, final | {"desired_goal": goal}
            reached = [data.rows[k]["next_obs"][env]["achieved_goal"] for k in times]
            rewards = [-float(abs(achieved - goal).item() > 0.5) for achieved in reached]
        assert same(obs[i], expected)
        assert same(then[i], final)
        total, rows = sum(GAMMA**k * r for k, r in enumerate(rewards)), len(times)
        assert batch.rewards[i].item() == pytest.approx(total, abs=bound(rows + 4, size=4 * rows))
        assert batch.dones[i].item() == float(last["done"][env] and not last["truncated"][env])
        if n != 1:
            assert batch.discounts[i].item() == pytest.approx(GAMMA**rows, abs=bound(rows + 2))
        yield t, env, rows


def one_by_one(buffer, batches):
    """Samples, and as what learners take."""
    samples, result = [], []
    for _ in range(batches):
        samples.append(buffer.sample(31))
        result.append((Transition.from_samples(samples[-1], GAMMA), samples[-1].indices))
        learn(buffer, samples[-1].indices)
    return samples, result


def drawn(buffer, batches, late):
    result = []
    for batch, cells in buffer.transitions(31, GAMMA, batches=batches, late=late):
        untouched = buffer.relabel is None and not buffer.optimize_memory_usage and not buffer.reduce.random
        assert isinstance(batch, TransitionRows) == (late and untouched)
        result.append((gathered(batch), cells))
        learn(buffer, cells)
    return result


def learn(buffer, cells):
    """Give the rows new priorities, which the next batch must know."""
    if cells is not None:
        buffer.update_priorities(cells, 10.0 ** (cells % 5))


def check_equal(ours, theirs, rounded):
    """Of tensors the same bits; ``rounded``: but for the last one of sums made in float64."""
    close = {"rtol": np.finfo(np.float32).eps, "atol": bound(3, 10.0, np.float64)}
    assert len(ours) == len(theirs)
    for (batch, cells), (their_batch, their_cells) in zip(ours, theirs, strict=True):
        for a, b in zip((*batch, cells), (*their_batch, their_cells), strict=True):
            for x, y in leaves(a, b):
                assert x is y is None or (x.shape, x.dtype) == (y.shape, y.dtype)
                assert x is None or torch.equal(x, y) or (rounded and torch.allclose(x, y, **close))


@pytest.mark.parametrize(
    ("kind", "n_envs", "padding"),
    pairwise(itertools.product(["box", "goal", "stack", "mixed"], [1, 3], ["zero", "repeat"])),
)
def test_memory_saving_returns_the_same_bits(experience, kind, n_envs, padding):
    """Under random ends, and resets that no done flag announces."""
    for seed, capacity in enumerate([1, 7, 50]):
        data = experience(kind, n_envs=n_envs, seed=seed, breaks=0.1, padding=padding)
        naive = make(data, capacity * n_envs, n_steps=2, gamma=GAMMA)
        saving = make(data, capacity * n_envs, n_steps=2, gamma=GAMMA, optimize_memory_usage=True)
        for t in range(data.steps):
            naive.add(*data.step(t))
            saving.add(*data.step(t))
            if t % 7 == 0:
                assert_equal_content(naive, saving)
        assert_equal_content(naive, saving)


def assert_equal_content(naive, saving):
    cells = np.arange(naive.size() * naive.n_envs)
    ours, theirs = saving.storage.read(cells), naive.storage.read(cells)
    for name in theirs:
        for a, b in leaves(ours[name], theirs[name]):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    for buffer in (naive, saving):
        buffer.seed(1)
    for a, b in zip(naive.sample(16)[:5], saving.sample(16)[:5], strict=True):
        for x, y in leaves(a, b):
            np.testing.assert_array_equal(x, y)


def leaves(a, b):
    return [(a[key], b[key]) for key in b] if isinstance(b, dict) else [(a, b)]


def test_stacked_frames_are_stored_once(experience):
    data = experience("stack", steps=300, n_envs=2)
    buffer = data.fill(make(data, 200, optimize_memory_usage=True))
    stack = buffer.storage.stacks[None]
    episodes = sum(int(row["done"].sum()) for row in data.rows[200:])
    assert stack.head - stack.tail <= 200 + 2 * episodes + 2 * 4
    with pytest.raises(AttributeError, match="optimize_memory_usage"):
        _ = buffer.next_observations


def test_unrelated_pictures_are_not_mistaken_for_stacks(experience):
    """Pictures that share nothing need more room than expected, which is made."""
    data = experience("stack", steps=400, n_envs=1)
    rng = np.random.default_rng(0)
    for row in data.rows:
        row["next_obs"] = [rng.integers(0, 3, (4, 6, 5)).astype(np.uint8)]
    for before, row in zip(data.rows, data.rows[1:], strict=False):
        row["obs"] = before["next_obs"]
    naive, saving = (data.fill(make(data, 300, optimize_memory_usage=saving)) for saving in (False, True))
    assert_equal_content(naive, saving)
    for buffer in (naive, saving):
        buffer.seed(2)
    for (a, _), (b, _) in zip(*(buffer.transitions(16, GAMMA, batches=3) for buffer in (naive, saving)), strict=True):
        assert torch.equal(a.observations, b.observations)
        assert torch.equal(a.next_observations, b.next_observations)


def test_bits_of_nan_and_negative_zero_survive():
    space = spaces.Box(-1, 1, (1,), np.float32)
    buffer = ReplayBuffer(10, space, space, "cpu", optimize_memory_usage=True)
    values = [0.0, np.nan, -0.0, 0.0]
    for value, following in zip(values, [np.nan, 0.0, 0.0, 1.0], strict=True):
        buffer.add(*(np.array([[v]], np.float32) for v in (value, following, 0)), np.zeros(1), np.zeros(1), [{}])
    then = buffer.storage.successors(np.arange(4)).ravel()
    assert np.signbit(then).tolist() == [False] * 4
    assert np.isnan(then[0])


def test_env_buffers_that_are_reused_do_not_leak_in():
    """A VecEnv may hand out the same array at every step."""
    space = spaces.Box(-1, 1, (1,), np.float32)
    obs, then = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
    buffer = ReplayBuffer(10, space, space, "cpu", optimize_memory_usage=True)
    for t in range(5):
        obs[:], then[:] = t, t + 1
        buffer.add(obs, then, np.full((1, 1), t), np.zeros(1), np.zeros(1), [{}])
    cells = np.arange(5)
    np.testing.assert_array_equal(buffer.storage.successors(cells).ravel(), cells + 1)
    obs[:] = then[:] = 9  # a reset to a state that stays as it is
    buffer.add(obs, then, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert buffer.storage.successors(cells).ravel().tolist() == [1, 2, 3, 4, 5]


def test_the_side_table_stays_small(experience):
    data = experience("box", steps=3000, n_envs=2, breaks=0.05)
    buffer = data.fill(make(data, 20, optimize_memory_usage=True))
    assert buffer.storage._side.nbytes < 40 * buffer.storage.observation.itemsize


def test_arrays_are_views(experience):
    data = experience("mixed", steps=5)
    buffer = data.fill(make(data))
    assert buffer.observations["picture"].shape == (100, 2, 4, 6, 5)
    buffer.rewards[:] = 7
    buffer.actions = np.full(buffer.actions.shape, 0.5, np.float32)
    batch = buffer.sample(8)
    assert (batch.rewards == 7).all()
    assert (batch.actions == 0.5).all()
    batch.rewards.zero_()
    assert (buffer.rewards == 7).all(), "sampling never hands out the storage itself"


def test_truncate_last_trajectory_separates_what_comes_next(experience):
    data = experience("box", steps=6, n_envs=1, seed=3)
    for row in data.rows:
        row["done"] = np.array([False])
    buffer = make(data, n_steps=3, gamma=GAMMA)
    data.fill(buffer, 0, 3)
    buffer.truncate_last_trajectory()
    data.fill(buffer, 3, 6)
    batch = buffer._get_samples(np.array([0, 1, 2, 3]))
    assert batch.discounts.ravel().tolist() == pytest.approx([GAMMA**3, GAMMA**2, GAMMA, GAMMA**3])
    assert (batch.dones == 0).all(), "a truncation is bootstrapped"


class Normalizer:
    def normalize_obs(self, obs):
        return obs * 2

    def normalize_reward(self, reward):
        return np.clip(reward, -0.5, 0.5)


@pytest.mark.parametrize("n", [1, 3])
def test_normalisation(experience, n):
    data = experience("box")
    buffer = data.fill(make(data, n_steps=n, gamma=GAMMA, seed=0))
    batch = buffer.sample(50, env=Normalizer())
    assert batch.rewards.dtype == torch.float32
    for i in range(50):
        t, env = data.find(batch.actions[i].numpy())
        times = data.window(t, env, n)
        np.testing.assert_array_equal(batch.observations[i].numpy(), data.rows[t]["obs"][env] * 2)
        np.testing.assert_array_equal(batch.next_observations[i].numpy(), data.rows[times[-1]]["next_obs"][env] * 2)
        total = sum(GAMMA**k * np.clip(data.rows[s]["reward"][env], -0.5, 0.5) for k, s in enumerate(times))
        assert batch.rewards[i].item() == pytest.approx(total, abs=bound(n + 2, size=n)), (
            "each reward is clipped, then summed"
        )


def test_uniform_draws_are_uniform(experience):
    scipy_stats = pytest.importorskip("scipy.stats")
    data = experience("box", steps=30, n_envs=3)
    buffer = data.fill(make(data, 60, seed=0))
    counts = np.zeros((20, 3))
    for _ in range(50):
        batch = buffer.sample(600)
        actions = batch.actions.numpy()
        for slot, env in itertools.product(range(20), range(3)):
            counts[slot, env] += (actions[:, 0] == buffer.actions[slot, env, 0]).sum()
    assert counts.sum() == 30_000
    assert scipy_stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_get_samples_can_be_overridden_and_called(experience):
    class Doubled(ReplayBuffer):
        def _get_samples(self, batch_inds, env=None):
            assert batch_inds.max() < self.size()
            batch = super()._get_samples(batch_inds, env)
            return batch._replace(rewards=2 * batch.rewards)

    data = experience("box", n_envs=2)
    for sampler in ("uniform", "prioritized"):
        plain = data.fill(make(data, seed=5, sampler=sampler))
        doubled = Doubled(200, data.space, data.action_space, "cpu", 2, seed=5, sampler=sampler)
        a, b = plain.sample(32), data.fill(doubled).sample(32)
        assert torch.equal(2 * a.rewards, b.rewards)
        assert torch.equal(a.actions, b.actions)
    drawn = plain._get_samples(np.array([4] * 200))
    envs = {data.find(a.numpy()) for a in drawn.actions}
    assert envs == {(4, 0), (4, 1)}


def test_seeds(experience):
    data = experience("goal")

    def draw(seed, reseed=None):
        buffer = data.fill(make(data, seed=seed))
        if reseed is not None:
            buffer.seed(reseed)
        return buffer.sample(20).actions

    assert torch.equal(draw(1), draw(1))
    assert torch.equal(draw(2, reseed=1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    np.random.seed(0)
    a = draw(None)
    np.random.seed(0)
    assert torch.equal(a, draw(None)), "without a seed of its own it follows numpy's global one"


@pytest.mark.parametrize(
    ("kind", "saving", "sampler", "steps"),
    pairwise(itertools.product(["box", "goal", "stack", "mixed"], [False, True], SAMPLERS, [0, 15, 60])),
)
def test_state_dict_resumes_bit_by_bit(experience, goal_env, kind, saving, sampler, steps):
    data = experience(kind, steps=90)

    def build(capacity=48, seed=0):
        relabel = Hindsight(goal_env, copy_info_dict=True) if kind == "goal" else None
        return make(
            data, capacity, optimize_memory_usage=saving, sampler=sampler, relabel=relabel, n_steps=2, seed=seed
        )

    original = data.fill(build(), 0, steps)
    state = original.state_dict()
    assert all(isinstance(v, np.ndarray) or plain(v) for v in state.values())
    assert all(len(v) == min(steps, 24) for k, v in state.items() if k in ("rewards", "actions"))
    restored = build(seed=9)
    restored.load_state_dict(state)
    pickled = pickle.loads(pickle.dumps(original))
    if kind == "goal":
        assert pickled.relabel.env is None
        pickled.relabel.env = goal_env
    for buffer in (restored, pickled):
        clone = copy.deepcopy(original)
        if kind == "goal":
            clone.relabel.env = goal_env
        for t in range(steps, min(steps + 14, 90)):
            clone.add(*data.step(t))
            buffer.add(*data.step(t))
            if clone.can_sample():
                for a, b in zip(clone.sample(8), buffer.sample(8), strict=True):
                    if b is not None:
                        assert all(np.array_equal(x, y) for x, y in leaves(a, b))


def plain(value):
    if isinstance(value, dict):
        return all(isinstance(k, str) and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (int, float, bool, str)


@pytest.mark.parametrize("kind", ["box", "stack", "mixed"])
@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("capacity", [10, 200])
def test_loading_into_another_size_keeps_the_newest_rows(experience, kind, saving, capacity):
    data = experience(kind, steps=70)
    state = data.fill(make(data, 100, optimize_memory_usage=saving), 0, 60).state_dict()
    buffer = make(data, capacity, optimize_memory_usage=saving)
    buffer.load_state_dict(state)
    fresh = data.fill(make(data, capacity), max(10, 60 - capacity // 2), 60)
    assert buffer.size() == fresh.size() == min(50, capacity // 2)
    for t in range(60, 70):
        chronological = [b._slots() for b in (buffer, fresh)]
        ours, theirs = (
            b.storage.read((slots[:, None] * 2 + np.arange(2)).ravel())
            for b, slots in zip((buffer, fresh), chronological, strict=True)
        )
        for name in theirs:
            for a, b in leaves(ours[name], theirs[name]):
                np.testing.assert_array_equal(a, b)
        buffer.add(*data.step(t))
        fresh.add(*data.step(t))


def test_loading_refuses_what_does_not_fit(experience):
    data = experience("box")
    state = data.fill(make(data)).state_dict()
    with pytest.raises(ValueError, match="n_envs=2, this one 1"):
        ReplayBuffer(10, data.space, data.action_space, "cpu").load_state_dict(state)
    with pytest.raises(ValueError, match="optimize_memory_usage"):
        make(data, optimize_memory_usage=True).load_state_dict(state)
    other = ReplayBuffer(10, spaces.Box(-1, 1, (4,)), data.action_space, "cpu", 2)
    with pytest.raises(ValueError, match=r"float32\[2, 3\] per step, this buffer holds float32\[2, 4\]"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="version"):
        make(data).load_state_dict({**state, "version": 99})


def test_another_sampler_can_take_over(experience):
    data = experience("box")
    state = data.fill(make(data)).state_dict()
    buffer = make(data, sampler="prioritized")
    buffer.load_state_dict(state)
    assert buffer.sample(32).weights.tolist() == [[1.0]] * 32


def test_pickle_holds_only_what_was_filled(experience):
    data = experience("box", steps=10)
    buffer = data.fill(make(data, 100_000))
    assert len(pickle.dumps(buffer)) < 20_000


def test_reset_and_extend(experience):
    data = experience("mixed", steps=20)
    buffer = make(data, 20, optimize_memory_usage=True, sampler="prioritized")
    buffer.extend(*zip(*(data.step(t) for t in range(20)), strict=True))
    assert (buffer.size(), buffer.full, buffer.pos) == (10, True, 0)
    buffer.reset()
    assert (buffer.size(), buffer.full, buffer.pos) == (0, False, 0)
    assert not buffer.can_sample()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    data.fill(buffer, 0, 5)
    assert buffer.sample(5).indices.max() < 10


def test_transition_folds_termination_and_discount(experience):
    data = experience("box")
    for n in (1, 3):
        batch = data.fill(make(data, n_steps=n, gamma=GAMMA, sampler="prioritized")).sample(64)
        transition = Transition.from_samples(batch, GAMMA)
        discounts = GAMMA if n == 1 else batch.discounts
        torch.testing.assert_close(transition.discounts, ((1 - batch.dones) * discounts).ravel())
        assert transition.rewards.shape == transition.weights.shape == (64,)
        assert 0 < (transition.discounts == 0).sum() < 64
    six = ReplayBufferSamples(*batch[:5])
    assert (Transition.from_samples(six, 0.5).weights == 1).all()


def test_aliases(experience):
    data = experience("goal")
    assert isinstance(DictReplayBuffer(10, data.space, data.action_space, device="cpu"), ReplayBuffer)
    with pytest.raises(AssertionError, match="DictReplayBuffer needs a Dict observation space, got Box"):
        DictReplayBuffer(10, data.space["observation"], data.action_space)
    n_step = NStepReplayBuffer(10, data.space, data.action_space, n_envs=2, device="cpu")
    assert (n_step.n_steps, n_step.gamma) == (3, 0.99)
    weighted = PrioritizedReplayBuffer(10, data.space, data.action_space, n_envs=2, device="cpu", alpha=0.3, n_steps=2)
    weighted.set_beta(0.9)
    assert (weighted.sampler.alpha, weighted.sampler.beta, weighted.n_steps) == (0.3, 0.9, 2)


def test_one_sampler_object_can_serve_as_a_pattern_for_two_buffers(experience):
    data = experience("box")
    pattern = Prioritized(alpha=1.0)
    a, b = (data.fill(make(data, sampler=pattern)) for _ in range(2))
    a.update_priorities(np.arange(120), np.full(120, 5.0))
    assert (b.sampler.tree.leaves[:120] == 1).all()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
        ({"gamma": 1.5}, "gamma must be between 0 and 1, got 1.5"),
        (
            {"sampler": "best"},
            r"sampler must be one of \['prioritized', 'rank_based', 'uniform'\] or a Sampler object, got 'best'",
        ),
        ({"n_envs": 0}, "n_envs must be at least 1, got 0"),
        ({"buffer_size": 0}, "buffer_size must be at least 1, got 0"),
        ({"relabel": Hindsight()}, "Hindsight replay needs a Dict observation space"),
    ],
)
def test_bad_arguments(experience, keywords, message):
    data = experience("box")
    defaults = {"buffer_size": 10, "observation_space": data.space, "action_space": data.action_space, "device": "cpu"}
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(**(defaults | keywords))


def test_bad_rows(experience):
    data = experience("box", n_envs=2)
    buffer = make(data)
    obs, then, *rest = data.step(0)
    with pytest.raises(ValueError, match=r"obs must have shape \(2, 3\) \(n_envs first\), got \(3,\)"):
        buffer.add(obs[0], then, *rest)
    goal = experience("goal")
    obs, then, *rest = goal.step(0)
    del obs["achieved_goal"]
    with pytest.raises(ValueError, match=r"obs lacks the keys \['achieved_goal'\]"):
        make(goal).add(obs, then, *rest)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        data.fill(buffer).sample(0)


def test_transitions_hold_float32_observations_and_the_buffer_its_own():
    space = spaces.Box(-1, 1, (2,), np.float64)
    buffer = ReplayBuffer(8, spaces.Dict({"a": space, "b": spaces.Discrete(3)}), ACTIONS, "cpu")
    plain = ReplayBuffer(8, space, ACTIONS, "cpu")
    rng = np.random.default_rng(0)
    for _ in range(8):
        a, then = rng.random((1, 2)), rng.random((1, 2))
        rest = rng.random((1, 2)), np.zeros(1), np.zeros(1), [{}]
        buffer.add({"a": a, "b": np.array([1])}, {"a": then, "b": np.array([2])}, *rest)
        plain.add(a, then, *rest)
    for batches in (1, 3):
        np.random.seed(0)
        samples = buffer.sample(5)
        np.random.seed(0)
        transition, _ = next(buffer.transitions(5, GAMMA, batches=batches))
        assert samples.observations["a"].dtype == torch.float64
        assert torch.equal(transition.observations["a"], samples.observations["a"].float())
        assert torch.equal(transition.next_observations["a"], samples.next_observations["a"].float())
        assert transition.observations["b"].dtype == torch.int64
        np.random.seed(0)
        transition, _ = next(plain.transitions(5, GAMMA, batches=batches))
        assert torch.equal(transition.observations, samples.observations["a"].float())
        np.random.seed(0)
        rows, _ = next(plain.transitions(5, GAMMA, batches=batches, late=True))
        assert torch.equal(gathered(rows).observations, transition.observations)
        assert torch.equal(rows.next_observations, transition.next_observations)  # for code that knows nothing of rows
        with pytest.raises(AttributeError, match="has no attribute 'reward'"):
            _ = rows.reward


def test_late_rows_show_what_was_written_since(experience):
    data = experience("box", n_envs=1)
    buffer = data.fill(make(data))
    rows, _ = next(buffer.transitions(5, GAMMA, late=True))
    buffer.rewards[:] = 7
    assert (gathered(rows).rewards == 7).all()


def test_transitions_ask_a_subclass_that_makes_its_own_batches(experience):
    class Zeroed(ReplayBuffer):
        def _get_samples(self, batch_inds, env=None):
            return super()._get_samples(batch_inds, env)._replace(rewards=torch.zeros(len(batch_inds), 1))

    class Short(ReplayBuffer):
        def sample(self, batch_size, env=None):
            return ReplayBufferSamples(*super().sample(2, env)[:5])

    data = experience("box")
    zeroed, short, patched = (
        data.fill(kind(200, data.space, ACTIONS, "cpu", data.n_envs)) for kind in (Zeroed, Short, ReplayBuffer)
    )
    batches = list(zeroed.transitions(6, GAMMA, batches=3))
    assert len(batches) == 3
    assert all((batch.rewards == 0).all() for batch, _ in batches)
    assert len(next(short.transitions(6, GAMMA))[0].rewards) == 2
    patched.sample = short.sample
    assert len(next(patched.transitions(6, GAMMA))[0].rewards) == 2


def test_to_torch_can_be_overridden(experience):
    class Doubled(ReplayBuffer):
        def to_torch(self, array, copy=True):
            return super().to_torch(array, copy).to(torch.float64)

    data = experience("box")
    buffer = data.fill(Doubled(200, data.space, ACTIONS, "cpu", data.n_envs))
    assert buffer.sample(3).rewards.dtype == torch.float64
    assert next(buffer.transitions(3, GAMMA))[0].rewards.dtype == torch.float64


def test_transitions_of_nothing(experience):
    data = experience("box")
    with pytest.raises(ValueError, match="empty"):
        next(make(data).transitions(5, GAMMA))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        next(data.fill(make(data)).transitions(0, GAMMA))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_time_limits_are_noted_whether_done_or_not(n_envs):
    space = spaces.Box(-1, 1, (1,), np.float32)
    buffer = ReplayBuffer(30, space, space, "cpu", n_envs=n_envs)
    flags = [np.random.default_rng(t).random(n_envs) < 0.4 for t in range(10)]
    for flag in flags:
        one = np.zeros((n_envs, 1), np.float32)
        infos = [{"TimeLimit.truncated": f} if f else {} for f in flag]
        buffer.add(one, one, one, np.zeros(n_envs), np.zeros(n_envs), infos)
    np.testing.assert_array_equal(buffer.timeouts[:10], np.array(flags, np.float32))
    if n_envs > 1:
        with pytest.raises(ValueError, match="broadcast"):
            buffer.add(one, one, one, np.zeros(n_envs), np.zeros(n_envs), [{}, {}])
