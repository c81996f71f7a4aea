"""Batches gathered on a device are those of main memory, bit for bit, whatever happened to the rows before."""

import copy
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import DQN
from polyak.experience import Hindsight, InsufficientMemoryError, ReplayBuffer, Ring
from polyak.experience import placement as module
from polyak.experience.mirror import Mirror, mirror_of
from polyak.experience.placement import Placement
from polyak.experience.record import record_dtype
from tests.pairs import pairwise

GAMMA = 0.9
CUDA = pytest.param(40, "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Mirrors on the CPU, too, and brought up to date for every batch."""
    monkeypatch.setattr(Placement, "_affordable", lambda self, device, needed: True)
    monkeypatch.setattr(module, "UPLOADS_PER_ROW", np.inf)


def pair(data, capacity=40, device="cpu", kind=ReplayBuffer, **keywords):
    """A buffer with a mirror and one without, seeded alike."""
    keywords |= {"gamma": GAMMA, "seed": 5}
    return tuple(
        kind(capacity, data.space, data.action_space, device, data.n_envs, storage_device=where, **keywords)
        for where in ("auto", "cpu")
    )


def mirror(buffer) -> Mirror | None:
    return buffer._placement._mirror


def leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif value is not None:
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)


def assert_same(ours, theirs):
    a, b = list(leaves(ours)), list(leaves(theirs))
    assert len(a) == len(b) > 0
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.cpu().numpy().tobytes() == y.cpu().numpy().tobytes()


def assert_draw_the_same(ours, theirs, batches=5):
    """Batches for learners and SB3-style samples; the latter's errors become priorities."""
    drawn = [list(buffer.transitions(11, GAMMA, batches=batches)) for buffer in (ours, theirs)]
    assert_same(drawn[0], drawn[1])
    a, b = ours.sample(7), theirs.sample(7)
    assert type(a) is type(b)
    assert_same(a, b)
    if a.indices is not None:
        for buffer in (ours, theirs):
            buffer.update_priorities(a.indices, 10.0 ** (a.indices % 5))


def looked_at_main_memory(buffer, monkeypatch, draw):
    """Whether ``draw()`` read whole rows from the storage."""
    calls = []
    with monkeypatch.context() as patch:
        patch.setattr(buffer.storage, "read", lambda *args: calls.append(args))
        try:
            draw()
        except (AttributeError, TypeError):
            assert calls
    return bool(calls)


@pytest.mark.parametrize(
    ("kind", "sampler", "saving", "n"),
    pairwise(itertools.product(["box", "stack", "mixed"], ["uniform", "prioritized"], [False, True], [1, 3])),
)
def test_batches_are_made_on_the_device(experience, kind, sampler, saving, n):
    """On one that holds no values, so that nothing can come back from it."""
    data = experience(kind)
    there, here = pair(data, 40, "meta", sampler=sampler, optimize_memory_usage=saving, n_steps=n)
    here.device = torch.device("cpu")
    for buffer in (there, here):
        data.fill(buffer)
    for _ in range(2):
        for (ours, _), (theirs, _) in zip(*(b.transitions(8, GAMMA, batches=2) for b in (there, here)), strict=True):
            for a, b in zip(leaves(ours), leaves(theirs), strict=True):
                assert (a.device.type, a.shape, a.dtype) == ("meta", b.shape, b.dtype)
    samples = there.sample(8)
    assert all(part.device.type == "meta" for part in leaves(samples[:7]))


@pytest.mark.parametrize("saving", [False, True])
def test_nothing_is_read_from_main_memory(experience, monkeypatch, saving):
    data = experience("stack")
    ours, theirs = (data.fill(buffer) for buffer in pair(data, optimize_memory_usage=saving))
    assert not looked_at_main_memory(ours, monkeypatch, lambda: list(ours.transitions(8, GAMMA, batches=3)))
    assert not looked_at_main_memory(ours, monkeypatch, lambda: ours.sample(8))
    assert looked_at_main_memory(theirs, monkeypatch, lambda: theirs.sample(8))


@pytest.mark.parametrize("saving", [False, True])
def test_only_what_is_new_is_uploaded(experience, monkeypatch, saving):
    data = experience("stack", n_envs=2, steps=60)
    ours, theirs = pair(data, 40, optimize_memory_usage=saving)
    uploaded = []

    def counted(source, target):
        uploaded.append(len(source))
        target.copy_(source)

    monkeypatch.setattr("polyak.experience.mirror.upload", counted)
    table, last = [], None
    for t in range(60):
        for buffer in (ours, theirs):
            buffer.add(*data.step(t))
        uploaded.clear()
        assert_draw_the_same(ours, theirs, batches=1)
        if mirror(ours) is last:  # there is a new one where the planes need more room than was expected
            table.append(uploaded[0])
            assert sum(uploaded) <= 2 + saving * 2 * 8
        last = mirror(ours)
    assert len(table) > 50
    assert set(table) == {2}
    uploaded.clear()
    ours.sample(3)
    assert uploaded == []
    ours.cut_episodes()
    ours.sample(3)
    assert uploaded[0] == 2


@pytest.mark.parametrize("kind", ["box", "mixed"])
@pytest.mark.parametrize("saving", [False, True])
def test_edits_through_views(experience, kind, saving):
    data = experience(kind)
    ours, theirs = (data.fill(buffer) for buffer in pair(data, optimize_memory_usage=saving))
    assert_draw_the_same(ours, theirs)
    for buffer in (ours, theirs):
        buffer.rewards[3:9] *= 2
        buffer.actions = np.full(buffer.actions.shape, 0.25, np.float32)
        if not (saving and kind == "mixed"):  # there the pictures are numbers
            for array in buffer.observations.values() if kind == "mixed" else [buffer.observations]:
                array[5] = 1
    assert_draw_the_same(ours, theirs)
    assert (ours.sample(8).actions == 0.25).all()


@pytest.mark.parametrize("hold", [np.asarray, lambda a: a[2:5].T[..., ::2], memoryview, torch.from_numpy])
def test_edits_through_views_that_were_kept(experience, monkeypatch, hold):
    """However it was made from the buffer's array: as long as it lives, main memory is read."""
    data = experience("box")
    ours, theirs = (data.fill(buffer) for buffer in pair(data, optimize_memory_usage=False))
    assert_draw_the_same(ours, theirs)
    kept = [hold(buffer.rewards) for buffer in (ours, theirs)]
    assert ours.storage.loans
    assert_draw_the_same(ours, theirs)
    for number in (7.0, 8.0):  # written after the last look, twice
        for view in kept:
            np.asarray(view)[...] = number
        assert_draw_the_same(ours, theirs)
    for view in kept:
        np.asarray(view)[...] = 9.0
    del kept, view
    assert not ours.storage.loans
    assert not looked_at_main_memory(ours, monkeypatch, lambda: ours.sample(8))
    theirs.sample(8)
    assert_draw_the_same(ours, theirs)
    assert (ours.sample(200).rewards == 9.0).any()


def test_using_a_buffer_lends_nothing(experience, goal_env):
    for kind, relabel in (("mixed", None), ("goal", Hindsight(goal_env))):
        for saving in (False, True):
            data = experience(kind)
            ours, _ = pair(data, relabel=relabel, sampler="prioritized", optimize_memory_usage=saving, n_steps=2)
            data.fill(ours)
            kept = [ours.sample(5), *ours.transitions(5, GAMMA, batches=2), ours.state_dict(), pickle.dumps(ours)]
            ours.cut_episodes()
            ours.load_state_dict(kept[-2])
            assert not ours.storage.loans


@pytest.mark.parametrize("kind", ["box", "stack", "mixed"])
@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize(("capacity", "device"), [(40, "cpu"), (400, "cpu"), CUDA])
def test_states_copies_and_resets(experience, kind, saving, capacity, device):
    data, other = experience(kind, steps=90), experience(kind, steps=70, seed=1)
    state = other.fill(pair(other, 60, optimize_memory_usage=saving)[1]).state_dict()
    ours, theirs = (data.fill(buffer, 0, 50) for buffer in pair(data, capacity, device, optimize_memory_usage=saving))
    assert_draw_the_same(ours, theirs)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    size = len(pickle.dumps(theirs))
    assert len(pickle.dumps(ours)) < size + 200, "the mirror is no data"
    for twin in copies:
        their_twin = copy.deepcopy(theirs)
        assert mirror(twin) is None
        for buffer in (twin, their_twin):
            data.fill(buffer, 50, 60)
        assert_draw_the_same(twin, their_twin)
        assert mirror(twin) is not mirror(ours) is not None
    for buffer in (ours, theirs):
        buffer.load_state_dict(state)
    assert_draw_the_same(ours, theirs)
    for buffer in (ours, theirs):
        data.fill(buffer, 60, 63)
    assert_draw_the_same(ours, theirs)
    for steps in (3, 25):
        for buffer in (ours, theirs):
            buffer.reset()
            data.fill(buffer, 60, 60 + steps)
        assert_draw_the_same(ours, theirs)


def test_pictures_that_share_less_than_expected(experience):
    """Their planes need more room than was taken, so the mirror is made anew."""
    data = experience("stack", steps=700, n_envs=1)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 3, (701, 4, 6, 5)).astype(np.uint8)
    for t, row in enumerate(data.rows):
        row["obs"], row["next_obs"] = [pictures[t]], [pictures[t + 1]]
    ours, theirs = pair(data, 300, optimize_memory_usage=True)
    mirrors = []
    for start in range(0, 700, 50):
        for buffer in (ours, theirs):
            data.fill(buffer, start, start + 50)
        assert_draw_the_same(ours, theirs)
        mirrors.append(mirror(ours))
    assert len(set(map(id, mirrors))) > 1


@pytest.mark.parametrize("saving", [False, True])
def test_types_survive(saving):
    """Also those that torch can hardly do anything with."""
    parts = {
        "double": spaces.Box(-1, 1, (2,), np.float64),
        "half": spaces.Box(-1, 1, (3,), np.float16),
        "depth": spaces.Box(0, 60000, (2, 3), np.uint16),
        "flag": spaces.Box(0, 1, (5,), np.bool_),
        "number": spaces.Box(-1, 1, (), np.float32),
        "kind": spaces.Discrete(5),
    }
    space = spaces.Dict(parts)
    space.seed(0)

    class Data:
        action_space, n_envs = spaces.MultiDiscrete([3, 4]), 2

    Data.space = space
    ours, theirs = pair(Data, 20, optimize_memory_usage=saving)
    for t in range(14):
        obs, then = ({key: np.stack([space[key].sample() for _ in range(2)]) for key in parts} for _ in range(2))
        step = obs, then, np.ones((2, 2), int) * t, np.full(2, np.nan if t == 3 else -0.0), np.zeros(2), [{}, {}]
        for buffer in (ours, theirs):
            buffer.add(*step)
    assert_draw_the_same(ours, theirs)
    transition, _ = next(ours.transitions(3, GAMMA))
    assert transition.observations["double"].dtype == torch.float32
    assert ours.sample(3).observations["double"].dtype == torch.float64


def test_batches_are_contiguous(experience):
    """Programs are built for strides, too: these are the ones that copies to a device have."""
    for saving in (False, True):
        data = experience("mixed")
        ours, _ = (data.fill(buffer) for buffer in pair(data, optimize_memory_usage=saving))
        assert all(part.is_contiguous() for part in leaves(next(ours.transitions(8, GAMMA, batches=3))))


class Doubler:
    def normalize_obs(self, obs):
        assert isinstance(obs, np.ndarray)
        return obs * 2

    def normalize_reward(self, reward):
        return np.clip(reward, -0.5, 0.5)


def test_what_passes_through_numpy_comes_from_main_memory(experience, goal_env):
    data = experience("box")
    ours, theirs = (data.fill(buffer) for buffer in pair(data))
    batches = [list(buffer.transitions(9, GAMMA, Doubler(), 2)) for buffer in (ours, theirs)]
    assert_same(*batches)
    assert mirror(ours) is None, "no memory is taken in vain"
    assert_draw_the_same(ours, theirs)

    class Halved(ReplayBuffer):
        def to_torch(self, array, copy=True):
            return torch.as_tensor(array).half()

    ours, theirs = (data.fill(buffer) for buffer in pair(data, kind=Halved))
    assert_draw_the_same(ours, theirs)
    assert mirror(ours) is None
    goals = experience("goal")
    ours, theirs = (goals.fill(buffer) for buffer in pair(goals, relabel=Hindsight(goal_env)))
    assert_draw_the_same(ours, theirs)
    assert mirror(ours) is None


def test_subclasses_build_on_it(experience):
    class Zeroed(ReplayBuffer):
        def _get_samples(self, batch_inds, env=None):
            return super()._get_samples(batch_inds, env)._replace(rewards=torch.zeros(len(batch_inds), 1))

    data = experience("box")
    ours, theirs = (data.fill(buffer) for buffer in pair(data, kind=Zeroed))
    assert_draw_the_same(ours, theirs)
    assert mirror(ours) is not None


def test_uploads_wait_until_they_pay(experience, monkeypatch):
    monkeypatch.setattr(module, "UPLOADS_PER_ROW", 4)
    data = experience("box", n_envs=2, steps=60)
    ours, theirs = (data.fill(buffer) for buffer in pair(data, 200))  # 120 rows to upload

    def from_main_memory():
        seen = looked_at_main_memory(ours, monkeypatch, lambda: ours.sample(16))
        theirs.sample(16)
        return seen

    assert [from_main_memory() for _ in range(4)] == [True, False, False, False]
    assert_draw_the_same(ours, theirs)
    assert ours.rewards.sum() == theirs.rewards.sum(), "whoever reads might have written"
    assert [from_main_memory() for _ in range(4)] == [True, False, False, False]
    for buffer in (ours, theirs):
        buffer.add(*data.step(0))
    assert not from_main_memory()
    assert_draw_the_same(ours, theirs)


def test_what_is_uploaded_covers_all_changes():
    """Random writes: the next rows, the newest again, any row, arrays lent, and an empty ring."""
    rng = np.random.default_rng(0)
    for steps in (1, 2, 7):
        ring = Ring(record_dtype({"rewards": np.dtype(np.int64)}), steps, 2)
        device, column = Mirror(ring, torch.device("cpu")), ring.columns["rewards"]
        for t in range(400):
            kind = rng.integers(12)
            if kind == 0:
                column[int(rng.integers(steps))] = t
                ring.edited()
            elif kind == 1:
                ring.lend("rewards")[int(rng.integers(steps))] = t
            elif kind == 2 and ring.written:
                column[ring.newest] = t
                ring.edited(newest=1)
            elif kind == 3 and rng.random() < 0.2:
                ring.clear()
            elif kind < 10:
                ring.append({"rewards": np.full(2, t)})
            else:
                device.update()
                cells = np.arange(2 * ring.filled)
                assert device.read(cells)["rewards"].tolist() == column.ravel()[cells].tolist()


@pytest.mark.parametrize("saving", [False, True])
def test_trainings_are_equal(saving):
    def parameters(where):
        model = DQN(
            "MlpPolicy",
            "CartPole-v1",
            learning_starts=20,
            train_freq=3,
            gradient_steps=-1,
            buffer_size=50,
            batch_size=16,
            optimize_memory_usage=saving,
            replay_buffer_kwargs={"storage_device": where},
            device="cpu",
            seed=0,
        ).learn(120)
        assert (mirror(model.replay_buffer) is None) == (where == "cpu")
        return model.policy.state_dict()

    assert_same(parameters("auto"), parameters("cpu"))


# --- which device -----------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """A machine that claims to have a GPU with 1000 bytes free; mirrors for it are made on the CPU."""
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module, "free_memory", lambda device: 1000)
    monkeypatch.setattr(module, "mirror_of", lambda ring, device: mirror_of(ring, torch.device("cpu")))


def test_free_memory_counts_what_torch_keeps(monkeypatch):
    for name, value in (("mem_get_info", (500, 2000)), ("memory_reserved", 300), ("memory_allocated", 120)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert module.free_memory(torch.device("cuda")) == 680


def ring_of(cells):
    """One that takes 20 bytes for each cell."""
    return Ring(record_dtype({"rewards": np.dtype((np.int32, (5,)))}), cells)


@pytest.mark.parametrize(
    ("choice", "device", "cells", "mirrored"),
    [
        ("auto", "cuda", 25, True),
        ("auto", "cuda", 26, False),
        ("auto", "cpu", 1, False),
        ("cpu", "cuda", 1, False),
        (torch.device("cpu"), "cuda", 1, False),
        ("cuda", "cuda:1", 50, True),
        (torch.device("cuda:1"), "cuda:1", 26, True),
    ],
)
def test_choices(gpu, choice, device, cells, mirrored):
    ring, where = ring_of(cells), torch.device(device)
    assert ring.nbytes == 20 * cells
    placement = Placement(choice, where)
    ring.append({"rewards": np.ones((1, 5))})
    assert (placement.source(ring, where, 8) is not ring) == mirrored
    assert (pickle.loads(pickle.dumps(placement)).source(ring, where, 8) is not ring) == mirrored


def test_the_device_may_change(gpu):
    ring, cpu, cuda = ring_of(10), torch.device("cpu"), torch.device("cuda")
    placement = Placement("auto", cpu)
    assert [placement.source(ring, where, 8) is ring for where in (cpu, cuda, cuda, cpu)] == [True, False, False, True]


def test_what_is_asked_for_and_does_not_fit(gpu):
    where = torch.device("cuda")
    with pytest.raises(InsufficientMemoryError, match=r"storage_device='cuda': the replay .* optimize_memory_usage"):
        Placement("cuda", where).mirror(ring_of(51), where)
    box = spaces.Box(-1, 1, (3,))
    with pytest.raises(InsufficientMemoryError, match=r"storage_device='cuda'"):
        ReplayBuffer(1000, box, box, "cuda", storage_device="cuda")
    assert isinstance(mirror(ReplayBuffer(10, box, box, "cuda", storage_device="cuda")), Mirror), "made at once"
    assert mirror(ReplayBuffer(10, box, box, "cuda")) is None, "made when it is needed"


@pytest.mark.parametrize(
    ("choice", "device", "message"),
    [
        ("gpu", "cpu", "storage_device must be 'auto', 'cpu', 'disk' or a device, got 'gpu'"),
        (None, "cpu", "storage_device must be 'auto', 'cpu', 'disk' or a device, got None"),
        ("cuda", "cpu", "storage_device='cuda' must be the device that batches go to, device='cpu'"),
        ("cuda:0", "cuda:1", "storage_device='cuda:0' must be the device that batches go to, device='cuda:1'"),
    ],
)
def test_bad_choices(gpu, choice, device, message):
    box = spaces.Box(-1, 1, (3,))
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(10, box, box, device, storage_device=choice)


def test_choices_in_vain(gpu, monkeypatch, experience, goal_env):
    class Halved(ReplayBuffer):
        def to_torch(self, array, copy=True):
            return torch.as_tensor(array).half()

    data = experience("goal")
    arguments = 10, data.space, data.action_space, "cuda"
    with pytest.raises(ValueError, match=r"storage_device='cuda' would not be used: Halved has a to_torch of its own"):
        Halved(*arguments, storage_device="cuda")
    with pytest.raises(ValueError, match=r"storage_device='cuda' would not be used: relabelling"):
        ReplayBuffer(*arguments, relabel=Hindsight(goal_env), storage_device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"storage_device='cuda': torch finds no CUDA device here"):
        ReplayBuffer(*arguments, storage_device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("saving", [False, True])
def test_the_host_does_not_wait(experience, saving):
    data = experience("stack")
    ours, _ = (data.fill(buffer, 0, 40) for buffer in pair(data, 100, "cuda", optimize_memory_usage=saving))
    list(ours.transitions(8, GAMMA, batches=3))
    data.fill(ours, 40, 45)
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(ours.transitions(8, GAMMA, batches=3))
    finally:
        torch.cuda.set_sync_debug_mode("default")
