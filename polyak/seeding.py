"""Seeding of all random generators, and their states as plain data."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any

import numpy as np
import torch

from polyak.warning import advise


def set_random_seed(seed: int, using_cuda: bool = False) -> None:
    """Seed python, numpy and torch.

    Args:
        seed: any integer numpy accepts, 0 to 2**32 - 1.
        using_cuda: also select deterministic cuDNN kernels, which are slower.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if using_cuda:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


_drawing: dict[int, int] = {}
"""Thread -> number of trainings running in it that draw from the global generators."""
_lock = Lock()
_alternates: ContextVar[bool] = ContextVar("alternates", default=False)


@contextmanager
def drawing(seed: int | None) -> Iterator[None]:
    """Context of a training, which draws from the global generators of python, numpy and torch.

    Args:
        seed: the training's. If it is given and another thread draws at the same time, a warning says that the results
            are not reproducible; ``None``: no warning.
    """
    if _alternates.get():
        yield
        return
    own = get_ident()
    with _lock:
        shared = any(thread != own for thread in _drawing)
        _drawing[own] = _drawing.get(own, 0) + 1
    if shared and seed is not None:
        advise(
            "trainings in several threads",
            f"seed={seed} does not determine the numbers of this training, since another one is under way in another "
            "thread, and both draw from the same generators. Run them one after another, or in processes: a study of "
            "Optuna with n_jobs=1 in each of several processes, or `polyak tune --n-jobs 2`.",
        )
    try:
        yield
    finally:
        with _lock:
            _drawing[own] -= 1
            if not _drawing[own]:
                del _drawing[own]


@contextmanager
def alternating() -> Iterator[None]:
    """Context of work in a thread that never runs at the same time as another, with its own random states."""
    token = _alternates.set(True)
    try:
        yield
    finally:
        _alternates.reset(token)


def derived_seed(*numbers: int) -> int:
    """Returns a seed derived from non-negative integers, such as a model's seed and a number of steps."""
    # 30 bits leave room for the environments' own seeds, seed + i, in a signed 32-bit integer.
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) >> 2


@contextmanager
def random_states_kept(*gpus: torch.device) -> Iterator[None]:
    """Restores the random states of the CPU and of these GPUs after the block."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=gpus):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def rng_state() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the states of python's, numpy's and torch's generators: JSON values, and arrays."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    values = {"python": [version, gauss], "numpy": [name, int(position), int(has_gauss), float(cached)]}
    arrays = {
        "python": np.asarray(internal, dtype=np.int64),
        "numpy": np.asarray(keys, dtype=np.int64),
        "torch": torch.get_rng_state().numpy(),
    }
    if torch.cuda.is_available():
        arrays |= {f"cuda.{i}": state.numpy() for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return values, arrays


def set_rng_state(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Restores what :func:`rng_state` returned. States of missing CUDA devices are ignored."""
    version, gauss = values["python"]
    random.setstate((version, tuple(arrays["python"].tolist()), gauss))
    name, position, has_gauss, cached = values["numpy"]
    np.random.set_state((name, arrays["numpy"].astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.from_numpy(np.array(arrays["torch"], dtype=np.uint8)))
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda.{i}" in arrays:
            torch.cuda.set_rng_state(torch.from_numpy(np.array(arrays[f"cuda.{i}"], dtype=np.uint8)), i)
