"""Sets and buffers in files: what they hold is the same, and they take no memory."""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from polyak import SAC
from polyak.experience import InsufficientMemoryError, ReplayBuffer, collect, memory
from tests.experience.large_sets import large_set
from tests.experience.recorded import recorded
from tests.warm import python

STACK = spaces.Box(0, 255, (4, 36, 36), np.uint8)


def temporary_files() -> list[str]:
    """The files without a name that this process has open, as Linux tells."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "polyak-replay" in line or ("(deleted)" in line and tempfile.gettempdir() in line):
            found.append(line)
    return found


@pytest.mark.parametrize("kind", ["box", "mixed"])
@pytest.mark.parametrize("saving", [False, True])
def test_a_buffer_in_a_file_holds_the_same(kind, saving):
    told = recorded(kind)
    dataset = told.dataset("with last")
    here, there = (
        ReplayBuffer(
            len(dataset) + 9,
            dataset.observation_space,
            dataset.action_space,
            "cpu",
            optimize_memory_usage=saving,
            storage_device=where,
            seed=3,
        )
        for where in ("cpu", "disk")
    )
    for buffer in (here, there):
        buffer.fill(dataset)
    for ours, theirs in zip(there.sample(50)[:5], here.sample(50)[:5], strict=True):
        for key in theirs if isinstance(theirs, dict) else [None]:
            np.testing.assert_array_equal(*((ours, theirs) if key is None else (ours[key], theirs[key])))
    again = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(again.contents()["actions"], here.contents()["actions"])


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="asks Linux")
@pytest.mark.parametrize("saving", [False, True])
def test_the_file_goes_with_the_buffer(saving):
    gc.collect()  # buffers of other tests
    names, before = set(os.listdir(tempfile.gettempdir())), len(temporary_files())
    buffer = ReplayBuffer(500, STACK, spaces.Discrete(3), "cpu", optimize_memory_usage=saving, storage_device="disk")
    assert len(temporary_files()) > before
    assert set(os.listdir(tempfile.gettempdir())) <= names  # it has no name
    del buffer
    gc.collect()
    assert len(temporary_files()) == before


def test_a_file_that_does_not_fit_is_refused(monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(InsufficientMemoryError, match="TMPDIR"):
        ReplayBuffer(500, STACK, spaces.Discrete(3), "cpu", storage_device="disk")


def test_what_does_not_fit_is_replayed_from_a_file(monkeypatch):
    dataset = collect("Pendulum-v1", None, 300, seed=0)
    with monkeypatch.context() as patched:
        patched.setattr(memory, "available_memory", lambda: 5000)
        large = SAC("MlpPolicy", dataset, seed=0)
    large.learn(20)
    assert large.data_buffer._on_disk
    model = SAC("MlpPolicy", dataset, seed=0).learn(20)
    assert not model.data_buffer._on_disk
    for ours, theirs in zip(large.policy.parameters(), model.policy.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach(), theirs.detach())


def test_the_limit_of_a_process_counts():
    pytest.importorskip("resource")
    program = (
        "import resource; from polyak.experience.memory import available_memory as free;"
        "resource.setrlimit(resource.RLIMIT_DATA, (2**33, 2**33)); assert 0 < free() <= 2**33, free()"
    )
    python(["-c", program], check=True)


TRAINING = """
import gc, sys
from pathlib import Path
import numpy as np
from polyak import TD3BC
from polyak.experience import Dataset
from tests.experience.large_sets import confine

path, headroom = sys.argv[1], int(sys.argv[2])
model = TD3BC("MlpPolicy", Dataset.load(sys.argv[3]), device="cpu", compile=False, seed=0)
model.learn(20)  # all that is loaded once
del model
gc.collect()
assert Path(path).stat().st_size > 5 * headroom
confine(headroom, path)
dataset = Dataset.load(path)
model = TD3BC("MlpPolicy", dataset, device="cpu", compile=False, seed=0)
assert model.data_buffer._on_disk
model.learn(50)
drawn = model.data_buffer.sample(256).rewards.numpy().ravel()
assert np.isin(drawn, np.arange(len(dataset), dtype=np.float32)).all() and np.ptp(drawn) > len(dataset) / 2
print("trained on", len(dataset))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_set_five_times_larger_than_the_memory_is_learned_from(tmp_path):
    headroom = 96 * 2**20
    path = large_set(tmp_path / "large", 500_000, 256)
    small = large_set(tmp_path / "small", 4000, 256)
    program = [sys.executable, "-c", TRAINING, str(path), str(headroom), str(small)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "TMPDIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    result = subprocess.run(program, env=environment, cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "trained on 500000"
