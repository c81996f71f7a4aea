"""The record and its ring, in numpy and in torch, against lists of rows."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from polyak.arrays import double, place
from polyak.experience import Experience, Ring
from polyak.experience.compact import CompactRing

LIBRARIES = [None, "cpu"]
N_ENVS = 3


def rows_of(steps, seed=0, goals=False):
    """Rows of random episodes of 1 to 6 steps in :data:`N_ENVS` environments. An observation is a number of its own."""
    random, observed = np.random.default_rng(seed), iter(range(10**6))
    elapsed = np.zeros(N_ENVS, int)
    limit = random.integers(1, 7, N_ENVS)

    def observe():
        vector = np.array([[next(observed)] for _ in range(N_ENVS)], np.float32)
        if not goals:
            return vector
        return {"observation": vector, "achieved_goal": vector * 2, "desired_goal": vector * 0 - 1}

    def chosen(mask, a, b):
        if isinstance(a, dict):
            return {key: chosen(mask, a[key], b[key]) for key in a}
        return np.where(mask[:, None], a, b)

    now, rows = observe(), []
    for _ in range(steps):
        elapsed += 1
        ended = elapsed >= limit
        terminated = ended & (random.random(N_ENVS) < 0.5)
        then = observe()
        rows.append(
            {
                "observations": now,
                "actions": random.integers(0, 5, (N_ENVS, 1)),
                "rewards": random.normal(size=N_ENVS).astype(np.float32),
                "next_observations": then,
                "terminated": terminated,
                "truncated": ended & ~terminated,
            }
        )
        now = chosen(ended, observe(), then)
        elapsed, limit = elapsed * ~ended, np.where(ended, random.integers(1, 7, N_ENVS), limit)
    return rows


def ring_of(rows, length, device, kind=Ring, **options):
    ring = kind(Experience({name: _stack(rows, name) for name in rows[0]}).layout(), length, N_ENVS, device, **options)
    for row in rows:
        ring.append(row)
    return ring


def _stack(rows, name):
    if isinstance(rows[0][name], dict):
        return {key: np.stack([row[name][key] for row in rows]) for key in rows[0][name]}
    return np.stack([row[name] for row in rows])


def array(column):
    return place(column, None)


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize("kind", [Ring, CompactRing])
@pytest.mark.parametrize("steps", [3, 8, 29])
def test_a_ring_holds_the_newest_rows_in_order(device, kind, steps):
    rows = rows_of(steps)
    ring = ring_of(rows, 8, device, kind)
    kept = rows[-ring.filled :]
    assert ring.filled == min(steps, 8)
    found = ring.all()
    assert isinstance(found.rewards, np.ndarray if device is None else torch.Tensor)
    for name in rows[0]:
        assert np.array_equal(array(found[name]), _stack(kept, name)), name


@pytest.mark.parametrize("device", LIBRARIES)
@pytest.mark.parametrize("kind", [Ring, CompactRing])
def test_cells_of_any_shape_are_read_with_their_true_successors(device, kind):
    rows = rows_of(21, goals=True)
    ring = ring_of(rows, 10, device, kind)
    times = np.arange(21 - ring.filled, 21)
    cells = (times % 10)[:, None] * N_ENVS + np.arange(N_ENVS)
    found, successors = ring.at(ring.index(cells)), ring.successors(ring.index(cells))
    assert found.lead == cells.shape
    for i, t in enumerate(times):
        for name in rows[0]["observations"]:
            assert np.array_equal(array(found.observations[name])[i], rows[t]["observations"][name])
            assert np.array_equal(array(found.next_observations[name])[i], rows[t]["next_observations"][name])
            assert np.array_equal(array(successors[name])[i], rows[t]["next_observations"][name])


def test_a_whole_rollout_from_elsewhere_becomes_the_ring_uncopied():
    sent = ring_of(rows_of(6), 6, None).all()
    ring = Ring(sent.layout(), 6, N_ENVS)
    ring.extend(sent)
    assert ring.columns["rewards"] is sent["rewards"]
    mapped = sent.map(lambda part: np.broadcast_to(part, part.shape))  # read-only, as another process maps it
    ring = Ring(sent.layout(), 6, N_ENVS)
    ring.extend(mapped)
    ring.columns["rewards"][0] = 5  # its own memory
    assert mapped.rewards[0, 0] != 5


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_from_elsewhere_are_copied_if_that_is_asked_or_their_types_are_others(library):
    sent = ring_of(rows_of(6), 6, library).all()
    ring = Ring(sent.layout(), 6, N_ENVS, library)
    ring.extend(sent, copy=True)
    assert place(ring.columns["rewards"], None).tolist() == place(sent.rewards, None).tolist()
    ring.columns["rewards"][0] = 5
    assert sent.rewards[0, 0] != 5
    ring = Ring(sent.layout(), 6, N_ENVS, library)
    ring.extend(sent.plus(rewards=double(sent.rewards)))
    assert ring.columns["rewards"].dtype == sent.rewards.dtype


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("count", [1, 3, 7, 10, 25])
def test_many_rows_at_once_are_what_they_are_one_by_one(library, count):
    rows = rows_of(4 + count)
    ours, theirs = ring_of(rows[:4], 7, library), ring_of(rows, 7, library)
    ours.extend(ring_of(rows[4:], count, library).all())
    assert (ours.written, ours.newest) == (theirs.written, theirs.newest)
    for name, column in theirs.all().items():
        assert place(ours.all()[name], None).tolist() == place(column, None).tolist()


def test_a_record_copies_only_what_is_elsewhere():
    rollout = ring_of(rows_of(5), 5, None).all()
    assert rollout.to(None) is rollout
    tensors = rollout.to("cpu")
    assert tensors.device == torch.device("cpu")
    assert tensors.to("cpu") is tensors
    assert tensors.rewards.data_ptr() == rollout.rewards.ctypes.data
    assert Experience.joined([rollout], 1) is rollout
    assert Experience.joined([rollout, rollout], 1).lead == (5, 2 * N_ENVS)
    assert rollout.flat().lead == (5 * N_ENVS,)
    assert np.array_equal(rollout.ended, rollout.terminated | rollout.truncated)
    assert np.array_equal(pickle.loads(pickle.dumps(rollout)).rewards, rollout.rewards)
    with pytest.raises(AttributeError, match=r"no column 'log_probs'.*'rewards'"):
        rollout.log_probs  # noqa: B018


def test_programs_take_a_record_apart_and_make_it_again():
    rollout = ring_of(rows_of(5), 5, "cpu").all()
    leaves, spec = pytree.tree_flatten(rollout)
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = pytree.tree_unflatten(leaves, spec)
    assert isinstance(again, Experience)
    assert torch.equal(again.rewards, rollout.rewards)


def test_rows_can_be_on_disk_but_not_on_a_device_as_well():
    rows = rows_of(9)
    ring = ring_of(rows, 8, None, on_disk=True)
    assert np.array_equal(ring.all().rewards, _stack(rows[-8:], "rewards"))
    with pytest.raises(ValueError, match="on_disk=True"):
        ring_of(rows, 8, "cpu", on_disk=True)
