"""The record and its ring, in numpy and in torch, against lists of rows."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from polyak.arrays import double, place
from polyak.experience import Experience, Ring

LIBRARIES = [None, "cpu"]
N_ENVS = 3


def rows_of(steps):
    """Rows of random numbers in :data:`N_ENVS` environments."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        terminated, truncated = random.random((2, N_ENVS)) < 0.3
        rewards = random.normal(size=N_ENVS).astype(np.float32)
        yield {"rewards": rewards, "terminated": terminated, "truncated": truncated & ~terminated}


def ring_of(steps, length, device, **options):
    rows = list(rows_of(steps))
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    ring = Ring(Experience(stacked).layout(), length, N_ENVS, device, **options)
    for row in rows:
        ring.append(row)
    return ring


def test_a_whole_rollout_from_elsewhere_becomes_the_ring_uncopied():
    sent = ring_of(6, 6, None).all()
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
    sent = ring_of(6, 6, library).all()
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
    ours, theirs = ring_of(4, 7, library), ring_of(4 + count, 7, library)
    ours.extend(ring_of(4 + count, 4 + count, library).all()[4:])
    assert (ours.written, ours.newest) == (theirs.written, theirs.newest)
    for name, column in theirs.all().items():
        assert place(ours.all()[name], None).tolist() == place(column, None).tolist()


def test_a_record_copies_only_what_is_elsewhere():
    rollout = ring_of(5, 5, None).all()
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
    rollout = ring_of(5, 5, "cpu").all()
    leaves, spec = pytree.tree_flatten(rollout)
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = pytree.tree_unflatten(leaves, spec)
    assert isinstance(again, Experience)
    assert torch.equal(again.rewards, rollout.rewards)


def test_rows_can_be_on_disk_but_not_on_a_device_as_well():
    ring = ring_of(9, 8, None, on_disk=True)
    assert np.array_equal(ring.all().rewards, [row["rewards"] for row in list(rows_of(9))[1:]])
    with pytest.raises(ValueError, match="on_disk=True"):
        ring_of(9, 8, "cpu", on_disk=True)
