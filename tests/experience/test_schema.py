"""Extra columns: what they may be, and that each row keeps its own through every kind of buffer and batch."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.experience import Column, Hindsight, ReplayBuffer, Schema, Sequence, Step, Transition, placement
from polyak.experience.batch import gathered
from polyak.experience.placement import Placement
from tests.experience.test_replay_buffer import Normalizer
from tests.pairs import pairwise

GAMMA = 0.9
COLUMNS = Schema([Column("serial", np.int64), Column("vector", np.float32, (3,)), Column("flag", bool)])


def serial(t, env):
    return 1000 * t + env


def extras_of(serials):
    """What each row brings, from its serial number [...]."""
    serials = np.asarray(serials)
    vector = np.stack([serials, -serials, serials % 7], -1).astype(np.float32)
    return {"serial": serials, "vector": vector, "flag": serials % 3 == 0}


def extras_at(t, n_envs):
    return extras_of([serial(t, env) for env in range(n_envs)])


def fill(buffer, data, start=0, stop=None):
    for t in range(start, data.steps if stop is None else stop):
        buffer.add(*data.step(t), extras=extras_at(t, data.n_envs))
    return buffer


def make(data, capacity=200, **keywords):
    return ReplayBuffer(capacity, data.space, data.action_space, "cpu", data.n_envs, columns=COLUMNS, **keywords)


def assert_extras_are_of_their_rows(data, actions, extras):
    serials = [serial(*data.find(action.numpy())) for action in actions]
    assert list(extras) == ["serial", "vector", "flag"]
    for name, expected in extras_of(serials).items():
        assert extras[name].dtype == torch.from_numpy(expected).dtype
        np.testing.assert_array_equal(extras[name].numpy(), expected)


@pytest.mark.parametrize(
    ("sampler", "n", "her", "saving", "kind"),
    pairwise(itertools.product(["uniform", "prioritized"], [1, 3], [False, True], [False, True], ["goal", "stack"])),
)
def test_extras_stay_with_their_rows(experience, goal_env, monkeypatch, sampler, n, her, saving, kind):
    """Drawn in every way, before and after the buffer is saved, pickled and filled on; from a device, too."""
    if her and kind != "goal":
        pytest.skip("hindsight needs goals")
    monkeypatch.setattr(Placement, "_affordable", lambda self, device, needed: True)
    monkeypatch.setattr(placement, "UPLOADS_PER_ROW", np.inf)
    data = experience(kind, steps=90, breaks=0.1)
    options = {"sampler": sampler, "n_steps": n, "gamma": GAMMA, "optimize_memory_usage": saving, "seed": 3}
    buffers = [
        make(data, 60, relabel=Hindsight(goal_env) if her else None, storage_device=where, **options)
        for where in ("cpu", "auto")
    ]
    for buffer in buffers:
        fill(buffer, data, 0, 70)
    restored = make(data, 60, relabel=Hindsight(goal_env) if her else None, **options)
    restored.load_state_dict(buffers[0].state_dict())
    pickled = pickle.loads(pickle.dumps(buffers[0]))
    if her:
        pickled.relabel.env = goal_env
    for buffer in (*buffers, restored, pickled):
        fill(buffer, data, 70, 75)
        samples = buffer.sample(64)
        assert_extras_are_of_their_rows(data, samples.actions, samples.extras)
        for late in (False, True):
            for batch, _ in buffer.transitions(16, GAMMA, batches=3, late=late):
                batch = gathered(batch)
                assert_extras_are_of_their_rows(data, batch.actions, batch.extras)
    assert buffers[1]._placement._mirror is not None or her


def test_buffers_without_columns_have_no_extras(experience):
    data = experience("box")
    buffer = data.fill(ReplayBuffer(200, data.space, data.action_space, "cpu", data.n_envs))
    assert buffer.extras == (buffer.sample(4).extras or {}) == next(buffer.transitions(4, GAMMA))[0].extras == {}
    assert "extras" not in buffer.storage.columns


def test_memory_accounts_for_the_columns():
    space = spaces.Box(-1, 1, (2,), np.float32)
    for saving in (False, True):
        plain, more = (
            ReplayBuffer(100, space, space, "cpu", optimize_memory_usage=saving, columns=columns)
            for columns in (None, [Column("memory", np.float32, (50,))])
        )
        assert more.storage.nbytes - plain.storage.nbytes == 100 * 50 * 4
        assert more.storage.row_bytes - plain.storage.row_bytes == 50 * 4
        sizes = [type(buffer.storage).size_of(buffer.layout, 100) for buffer in (plain, more)]
        assert sizes[1] - sizes[0] == 100 * 50 * 4


def step_of(data, t, **changes):
    obs, then, action, reward, done, infos = data.step(t)
    truncated = data.rows[t]["truncated"]
    infos = [{"TimeLimit.truncated": "not to be read"} for _ in infos]
    step = Step(
        obs, action, action, reward, then, done & ~truncated, truncated, done, infos, then, done, bool(done.any())
    )
    return step._replace(extras=extras_at(t, data.n_envs), **changes)


@pytest.mark.parametrize("handle", [True, False])
def test_a_recorded_step_is_an_added_one(experience, handle):
    """What the runner decoded is taken from the step, not from its infos."""
    data = experience("mixed", steps=60)
    added, recorded = (make(data, handle_timeout_termination=handle) for _ in range(2))
    fill(added, data)
    for t in range(data.steps):
        recorded.record(step_of(data, t))
    states = added.state_dict(), recorded.state_dict()
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][key])
    assert recorded.timeouts.any() == handle


def test_recording_asks_an_add_of_ones_own(experience):
    class Halved(ReplayBuffer):
        def add(self, obs, next_obs, action, reward, done, infos):
            super().add(obs, next_obs, action, reward / 2, done, infos)

    class Noted(ReplayBuffer):
        def add(self, *args, extras=None):
            super().add(*args, extras=extras | {"flag": ~extras["flag"]})

    data = experience("box", steps=5)
    ours = Halved(10, data.space, data.action_space, "cpu", data.n_envs)
    infos = data.rows[0]["infos"]
    ours.record(step_of(data, 0, infos=infos)._replace(extras={}))
    np.testing.assert_array_equal(ours.rewards[0], data.rows[0]["reward"] / 2)
    noted = Noted(10, data.space, data.action_space, "cpu", data.n_envs, columns=COLUMNS)
    noted.record(step_of(data, 0, infos=infos))
    np.testing.assert_array_equal(noted.extras["flag"][0], ~extras_at(0, 2)["flag"])
    seen, patched = [], make(data)
    patched.add = lambda *args, **keywords: seen.append(keywords)
    patched.record(step_of(data, 0, infos=infos))
    assert list(seen[0]) == ["extras"]
    assert patched.pos == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"vector": None},
            "extras lacks the column 'vector': every step must bring it, as an array of shape \\(2, 3\\)",
        ),
        ({"more": np.zeros(2)}, r"extras brings \['more'\], which no column was declared for"),
        ({"vector": np.zeros((2, 4))}, r"extras\['vector'\] must have shape \(2, 3\) \(n_envs first\), got \(2, 4\)"),
        ({"serial": np.zeros(3, int)}, r"extras\['serial'\] must have shape \(2,\)"),
        ({"serial": np.zeros(2)}, r"extras\['serial'\] must be of dtype int64, got float64"),
        ({"flag": np.zeros(2, int)}, r"extras\['flag'\] must be of dtype bool, got int64"),
    ],
)
def test_wrong_extras_are_refused(experience, change, message):
    data = experience("box", steps=3)
    buffer = make(data)
    extras = {key: value for key, value in (extras_at(0, 2) | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        buffer.add(*data.step(0), extras=extras)
    assert buffer.pos == 0
    with pytest.raises(ValueError, match="extras lacks the column 'serial'"):
        buffer.add(*data.step(0))
    plain = ReplayBuffer(10, data.space, data.action_space, "cpu", 2)
    with pytest.raises(ValueError, match=r"extras brings \['serial', 'vector', 'flag'\]"):
        plain.record(step_of(data, 0))


def test_tensors_and_lists_may_be_extras(experience):
    data = experience("box", steps=3)
    buffer = make(data)
    values = extras_at(1, 2)
    buffer.add(*data.step(0), extras={name: torch.from_numpy(value) for name, value in values.items()})
    buffer.add(*data.step(1), extras={name: value.tolist() for name, value in values.items()})
    for name, value in values.items():
        np.testing.assert_array_equal(buffer.extras[name][:2], np.stack([value, value]))


def test_saved_columns_must_be_those_declared(experience):
    data = experience("box")
    saved = fill(make(data), data).state_dict()
    plain = ReplayBuffer(200, data.space, data.action_space, "cpu", 2)
    with pytest.raises(ValueError, match=r"The saved buffer has the columns \['serial', 'vector', 'flag'\]"):
        plain.load_state_dict(saved)
    with pytest.raises(ValueError, match="The saved buffer has no 'extras/serial': declare other columns"):
        make(data).load_state_dict(data.fill(plain).state_dict())
    other = ReplayBuffer(
        200, data.space, data.action_space, "cpu", 2, columns=[*COLUMNS.columns[:2], Column("flag", int)]
    )
    with pytest.raises(ValueError, match="The saved 'extras/flag' are bool"):
        other.load_state_dict(saved)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two words", float), "must be an identifier such as 'action_mask', got 'two words'"),
        ((3, float), "must be an identifier"),
        (("rewards", float), "The column 'rewards' exists already in every step: choose another name"),
        (("truncated", bool), "exists already"),
        (("x", "no type"), "The column 'x' has dtype='no type', which tensors cannot hold"),
        (("x", object), "which tensors cannot hold"),
        (("x", "U5"), "which tensors cannot hold"),
        (("x", float, 3), r"The column 'x' has shape=3: it must be a tuple of positive integers"),
        (("x", float, (3, 0)), r"has shape=\(3, 0\)"),
        (("x", float, (2.5,)), r"has shape=\(2.5,\)"),
    ],
)
def test_bad_columns(arguments, message):
    with pytest.raises(ValueError, match=message):
        Column(*arguments)


def test_bad_schemas():
    with pytest.raises(ValueError, match="There are two columns 'x': give one of them another name"):
        Schema([Column("x", float), Column("y", float), Column("x", int)])
    with pytest.raises(TypeError, match=r"columns must be Column objects, got \('x', .*: write Column\(name, dtype"):
        Schema([("x", float)])
    with pytest.raises(ValueError, match="The column 'x' cannot hold values of Dict"):
        Schema.from_spaces({"x": spaces.Dict({"a": spaces.Discrete(2)})})


# -- sequences -------------------------------------------------------------------------------------------------------


def brute_force(data, t, env, transitions, n, stop, size=1, before=0):
    """The times of a sequence's transitions, of which ``before`` at most precede t, and of the windows that each of
    them spans; a buffer of ``size`` slots is looked at back to its oldest row."""
    times = [t]
    while before and times[0] > max(stop - size, 0) and not data.rows[times[0] - 1]["done"][env]:
        times.insert(0, times[0] - 1)
        before -= 1
    while not data.rows[times[-1]]["done"][env] and times[-1] + 1 < stop:
        times.append(times[-1] + 1)
    starts = times[:transitions]
    return starts, [times[i : i + n] for i in range(len(starts))]


SEQUENCES = [
    (kind, sampler, n, her, saving, burn_in, in_tensors)
    for kind, sampler, n, her, saving, burn_in, in_tensors in itertools.product(
        ["goal", "stack", "mixed"], ["uniform", "prioritized"], [1, 3], *[[False, True]] * 2, [0, 2], [False, True]
    )
    if kind == "goal" or not her
]


@pytest.mark.parametrize(("kind", "sampler", "n", "her", "saving", "burn_in", "in_tensors"), pairwise(SEQUENCES))
def test_sequences_are_what_happened(experience, compare, goal_env, kind, sampler, n, her, saving, burn_in, in_tensors):
    rows_of, same = compare
    data, transitions = experience(kind, steps=60), burn_in + 3
    buffer = make(
        data,
        48,
        reduce=Sequence(3, burn_in),
        n_steps=n,
        gamma=GAMMA,
        sampler=sampler,
        relabel=Hindsight(goal_env) if her else None,
        in_tensors=in_tensors,
        optimize_memory_usage=saving,
        seed=0,
    )
    lengths = set()
    for start, stop in ((0, 20), (20, 45), (45, 60)):
        fill(buffer, data, start, stop)
        samples = buffer.sample(40)
        assert samples.rewards.shape == samples.dones.shape == (40, transitions, 1)
        assert samples.valid.shape == (40, transitions)
        transition = Transition.from_samples(samples, GAMMA)
        for i in range(40):
            t, env = data.find(samples.actions[i, burn_in].numpy())
            starts, spans = brute_force(data, t, env, transitions, n, stop, buffer.buffer_size, burn_in)
            back = burn_in - starts.index(t)
            starts, spans = starts[: transitions - back], spans[: transitions - back]
            count = len(starts)
            lengths.add(count)
            assert samples.valid[i].tolist() == [False] * back + [True] * count + [False] * (transitions - back - count)
            obs, then = (rows_of(part_of(o, i)) for o in (samples.observations, samples.next_observations))
            goal = obs[0]["desired_goal"] if her else None
            for j in range(transitions):
                k = min(max(j - back, 0), count - 1)  # beyond the end the last row is repeated, before it the first
                expected, last = data.rows[starts[k]]["obs"][env], data.rows[spans[k][-1]]
                final = last["next_obs"][env]
                rewards = [data.rows[s]["reward"][env] for s in spans[k]]
                if her:
                    expected, final = expected | {"desired_goal": goal}, final | {"desired_goal": goal}
                    achieved = [data.rows[s]["next_obs"][env]["achieved_goal"] for s in spans[k]]
                    rewards = [-float(abs(a - goal).item() > 0.5) for a in achieved]
                assert same(obs[j], expected)
                assert j < back or same(then[j], final)
                assert samples.extras["serial"][i, j] == serial(starts[k], env)
                np.testing.assert_array_equal(
                    samples.extras["vector"][i, j], extras_of(serial(starts[k], env))["vector"]
                )
                total = sum(GAMMA**m * r for m, r in enumerate(rewards)) if 0 <= j - back < count else 0.0
                assert samples.rewards[i, j].item() == pytest.approx(total, abs=1e-5)
                terminated = bool(last["done"][env] and not last["truncated"][env])
                assert j < back or samples.dones[i, j].item() == terminated
                discount = GAMMA ** len(spans[k]) * (not terminated) * (0 <= j - back < count)
                assert transition.discounts[i, j].item() == pytest.approx(discount, abs=1e-6)
        if sampler == "prioritized":
            assert samples.indices.shape == (40,)
            buffer.update_priorities(samples.indices, torch.rand(40))
            with pytest.raises(ValueError, match=f"each of the 40 indices, got {40 * transitions}"):
                buffer.update_priorities(samples.indices, torch.rand(40, transitions))
    assert {1, transitions} <= lengths, "whole sequences and short ones"


def part_of(observations, i):
    return {key: a[i] for key, a in observations.items()} if isinstance(observations, dict) else observations[i]


@pytest.mark.parametrize("kind", ["box", "mixed"])
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("n", [1, 2])
def test_learners_get_the_sequences_that_are_sampled(experience, monkeypatch, kind, sampler, n):
    """One at a time or many, from main memory or a device."""
    monkeypatch.setattr(Placement, "_affordable", lambda self, device, needed: True)
    monkeypatch.setattr(placement, "UPLOADS_PER_ROW", np.inf)
    data, results = experience(kind), []
    for where, batches in (("cpu", 1), ("cpu", 4), ("auto", 4)):
        options = {"sampler": sampler, "n_steps": n, "gamma": GAMMA, "seed": 1, "storage_device": where}
        buffer = fill(make(data, reduce=Sequence(4, 1), **options), data)
        if batches == 1:
            results.append([Transition.from_samples(buffer.sample(8), GAMMA) for _ in range(4)])
        else:
            results.append([batch for batch, _ in buffer.transitions(8, GAMMA, batches=4, late=True)])
    for batches in results[1:]:
        for ours, theirs in zip(results[0], batches, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                parts = [(a[key], b[key]) for key in a] if isinstance(a, dict) else [(a, b)]
                assert all(torch.equal(x, y) for x, y in parts)


def test_normalisation_of_sequences(experience):
    data = experience("box")
    buffer = fill(make(data, reduce=Sequence(4), seed=0), data)
    plain = buffer.sample(20)
    buffer.seed(0)
    ours = buffer.sample(20, env=Normalizer())
    assert torch.equal(ours.observations, plain.observations * 2)
    assert torch.equal(ours.rewards, plain.rewards.clamp(-0.5, 0.5))
    assert ours.rewards.dtype == torch.float32


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"reduce": lambda: Sequence(0)}, "length must be at least 1, got 0"),
        ({"reduce": lambda: Sequence(2, -1)}, "burn_in must be at least 0, got -1"),
        ({"reduce": lambda: Sequence(40, 20)}, "looks at 60 successive rows, but the buffer keeps only 50 of each"),
    ],
)
def test_bad_sequences(experience, keywords, message):
    with pytest.raises(ValueError, match=message):
        make(experience("box"), 100, reduce=keywords["reduce"]())


def test_who_says_how_many_steps(experience):
    from polyak.experience import NStep

    data = experience("box")
    assert make(data, reduce=NStep(3, 0.5)).n_steps == 3
    assert make(data, reduce=NStep(3, 0.5), n_steps=3).reduce == NStep(3, 0.5)
    assert make(data, reduce=Sequence(4), n_steps=3, gamma=0.5).reduce == Sequence(4, 0, NStep(3, 0.5))
    with pytest.raises(ValueError, match="n_steps=3 contradicts reduce=NStep"):
        make(data, reduce=NStep(2), n_steps=3)
    with pytest.raises(ValueError, match="n_steps=3 contradicts reduce=Sequence"):
        make(data, reduce=Sequence(4, n_step=NStep(2)), n_steps=3)
