"""The action transform of exported graphs gives what the codec gives, for any space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from polyak.nn.codec import make_codec
from polyak.nn.export.actions import EnvironmentActions

ROWS = 40
CHOICES = {
    "discrete": spaces.Discrete(5),
    "discrete from -2 on": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-discrete from elsewhere": spaces.MultiDiscrete([3, 4], start=[5, -7]),
    "multi-discrete of two dimensions": spaces.MultiDiscrete([[3, 4], [2, 2]]),
    "multi-binary": spaces.MultiBinary(4),
}


def chosen(space: Any, rng: np.random.Generator) -> np.ndarray:
    """Choices as policies give them, counting from 0: [B, ...]"""
    if isinstance(space, spaces.Discrete):
        return rng.integers(int(space.n), size=ROWS)
    sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
    return rng.integers(sizes, size=(ROWS, *sizes.shape))


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    """A Box of any dtype, with bounds of its dtype."""
    dtype: Any = draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32]))
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    if np.dtype(dtype).kind == "f":
        limit = 1e4
        bounds = st.floats(-limit, limit, width=16)
    else:
        bounds = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    one, other = draw(bounds), draw(bounds)
    low, high = min(one, other), max(one, other)
    return spaces.Box(np.full(shape, low, dtype), np.full(shape, high, dtype), dtype=dtype)


@settings(max_examples=60, deadline=None)
@given(space=boxes(), squash=st.booleans(), seed=st.integers(0, 1000))
def test_actions_of_a_box(space: spaces.Box, squash: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reach = 1.0 if squash else 1.5 * float(np.abs(np.array([space.low, space.high], np.float64)).max()) + 1.0
    given = rng.uniform(-reach, reach, (ROWS, *space.shape)).astype(np.float32)
    theirs = make_codec(space, squash).to_env(given)
    (ours,) = EnvironmentActions(make_codec(space, squash))(torch.from_numpy(given))
    assert ours.numpy().dtype == space.dtype
    np.testing.assert_array_equal(ours.numpy(), theirs)  # the same operations in the same dtypes
    assert all(space.contains(action) for action in map(np.asarray, ours.numpy()))


def test_a_box_without_bounds_and_one_of_64_bits() -> None:
    free = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    given = torch.tensor([[1e30, -3.0]])
    assert torch.equal(EnvironmentActions(make_codec(free))(given)[0], given)
    wide = spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (1,), np.int64)
    (found,) = EnvironmentActions(make_codec(wide))(torch.tensor([[1e30], [-1e30], [7.4]]))
    assert all(wide.contains(action) for action in found.numpy())
    assert found[2, 0] == 7


@pytest.mark.parametrize("kind", CHOICES)
def test_choices(kind: str) -> None:
    space = CHOICES[kind]
    given = chosen(space, np.random.default_rng(0))
    (ours,) = EnvironmentActions(make_codec(space))(torch.from_numpy(given))
    assert ours.numpy().dtype == space.dtype
    np.testing.assert_array_equal(ours.numpy(), make_codec(space).to_env(given))
    assert all(space.contains(action if action.ndim else space.dtype.type(action)) for action in ours.numpy())


def test_composed_actions() -> None:
    lever = spaces.Box(np.float32([-1, 0]), np.float32([1, 7]))
    space = spaces.Dict(
        b=spaces.Tuple((CHOICES["discrete from -2 on"], lever)),
        a=CHOICES["multi-discrete from elsewhere"],
        c=spaces.MultiBinary(2),
    )
    rng = np.random.default_rng(0)
    columns = [
        chosen(space["a"], rng),
        chosen(space["b"][0], rng)[:, None],
        rng.normal(0, 4, (ROWS, 2)),
        chosen(space["c"], rng),
    ]
    given = np.concatenate(columns, 1).astype(np.float32)
    graph = EnvironmentActions(make_codec(space))
    ours = {
        port.name: (port, part.numpy()) for port, part in zip(graph.ports, graph(torch.from_numpy(given)), strict=True)
    }
    assert list(ours) == ["action.a", "action.b/0", "action.b/1", "action.c"]
    for port, values in ours.values():
        assert values.dtype == port.dtype
        for mine, theirs in zip(values, make_codec(space).to_env(given), strict=True):
            for key in port.details["path"]:
                theirs = theirs[key]
            np.testing.assert_array_equal(mine, theirs)
