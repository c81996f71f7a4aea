"""A buffer that can not fit is refused before anything is allocated, with figures and ways out."""

import time
import warnings

import numpy as np
import pytest
from gymnasium import spaces

import polyak
import polyak.compat.sb3 as sb3
from polyak.experience import InsufficientMemoryError, ReplayBuffer, RolloutBuffer
from polyak.experience import memory as module
from polyak.experience.memory import available_memory, check_memory

ATARI = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def test_available_memory_is_plausible():
    free = available_memory()
    assert free is not None
    assert 1e7 < free < 1e14


def test_containers_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 200\n")
    assert available_memory(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) > 1e7


@pytest.mark.parametrize(
    ("needed", "outcome"), [(80, None), (90, "warning"), (100, "warning"), (101, InsufficientMemoryError)]
)
def test_limits(monkeypatch, needed, outcome):
    monkeypatch.setattr(module, "available_memory", lambda: 100)
    if outcome == "warning":
        with pytest.warns(UserWarning, match="That is close"):
            check_memory(needed, "It")
    elif outcome:
        with pytest.raises(MemoryError, match="It needs .* GB and .* GB of memory is free"):
            check_memory(needed, "It")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_memory(needed, "It")


def test_impossible_buffers_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda: int(16e9))
    start = time.process_time()
    with pytest.raises(InsufficientMemoryError) as error:
        ReplayBuffer(1_000_000, ATARI, spaces.Discrete(4))
    assert time.process_time() - start < 1
    message = str(error.value)
    for part in (
        "buffer_size=1,000,000",
        "needs 56.47 GB and 16.00 GB of memory is free",
        "a smaller buffer_size (17,70",
        "optimize_memory_usage=True (7.",
        "uint8",
    ):
        assert part in message
    with pytest.raises(InsufficientMemoryError, match="needs 75") as error:
        ReplayBuffer(10_000_000, ATARI, spaces.Discrete(4), optimize_memory_usage=True)
    assert "optimize_memory_usage" not in str(error.value)


def test_impossible_rollouts_are_refused(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda: int(16e9))
    with pytest.raises(InsufficientMemoryError, match=r"1,000,000 steps of n_envs=2.*needs 56.52 GB.*n_steps"):
        RolloutBuffer(1_000_000, ATARI, spaces.Discrete(4), n_envs=2)


def test_the_peers_names_warn_of_buffers_that_would_not_fit(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda: 10_000)
    with pytest.warns(UserWarning, match="10,000 transitions.*0.00 GB of memory is free. It would not fit.*Ways out"):
        model = sb3.DQN("MlpPolicy", "CartPole-v1", buffer_size=10_000, learning_starts=8, batch_size=4)
    assert model.learn(12).num_timesteps == 12
    with pytest.raises(InsufficientMemoryError):
        polyak.DQN("MlpPolicy", "CartPole-v1", buffer_size=10_000)


def test_memory_that_the_system_does_not_give():
    with pytest.raises(InsufficientMemoryError, match=r"no 4611686018.43 GB of memory. Use a smaller buffer_size"):
        module.zeros(2**62, np.uint8)


@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("space", [ATARI, spaces.Box(-1, 1, (17,), np.float32)])
def test_the_estimate_is_what_gets_allocated(saving, space):
    buffer = ReplayBuffer(500, space, spaces.Box(-1, 1, (6,)), "cpu", optimize_memory_usage=saving)
    storage = buffer.storage
    allocated = storage.records.rows.nbytes
    if saving:
        allocated += storage._side_row.nbytes + sum(stack.planes.nbytes for stack in storage.stacks.values())
    estimate = type(storage).size_of(buffer.layout, 500)
    assert allocated == pytest.approx(estimate, rel=0.01)  # but for small change


def test_unused_rows_cost_nothing():
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    before = process.memory_info().rss
    buffer = ReplayBuffer(20_000, ATARI, spaces.Discrete(4), "cpu")  # 1.1 GB if it were touched
    assert buffer.storage.records.rows.nbytes > 1e9
    assert process.memory_info().rss - before < 5e7


def test_growing_stacks_ask_first(monkeypatch):
    space = spaces.Box(0, 255, (4, 6, 6), np.uint8)
    buffer = ReplayBuffer(5000, space, spaces.Discrete(2), "cpu", optimize_memory_usage=True)
    monkeypatch.setattr(module, "available_memory", lambda: 100_000)
    rng = np.random.default_rng(0)

    def unrelated_pictures():
        for _ in range(5000):
            obs = rng.integers(0, 255, (1, 4, 6, 6)).astype(np.uint8)
            buffer.add(obs, obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])

    with pytest.raises(InsufficientMemoryError, match="repeat fewer frames than expected"):
        unrelated_pictures()
    assert buffer.pos < 600, "noticed early, not when the memory is used up"
