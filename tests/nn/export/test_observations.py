"""What stands before the policy in an exported graph: channel order and the statistics of VecNormalize."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.envs import DummyVecEnv, VecNormalize
from polyak.nn.export.observations import Reader
from tests.worlds import Drawn

VECTOR = spaces.Box(-5.0, 5.0, (3,), np.float64)
IMAGE = spaces.Box(0, 255, (3, 8, 6), np.uint8)
DICT = spaces.Dict(vector=VECTOR, image=IMAGE, which=spaces.Discrete(4))


def normalizer(space: spaces.Space[Any], **options: Any) -> VecNormalize:
    """With statistics of a few observations."""
    env = VecNormalize(DummyVecEnv([lambda: Drawn(observation_space=space)]), **options)
    for _ in range(5):
        env.reset()
    return env


def test_normalised_to_the_bit() -> None:
    statistics = normalizer(VECTOR, clip_obs=1.0)
    raw = np.stack([VECTOR.sample() for _ in range(50)])
    (port,) = (reader := Reader(VECTOR, statistics)).ports
    assert (port.name, port.dtype, port.shape) == ("observation", "float64", (3,))
    seen = reader((torch.from_numpy(raw),))
    expected = statistics.normalize_obs(raw)
    assert seen.dtype == torch.float32
    np.testing.assert_array_equal(seen.numpy(), expected)
    assert (np.abs(expected) == 1).any()


def test_some_keys_are_normalised_and_images_transposed() -> None:
    statistics = normalizer(DICT, norm_obs_keys=["vector"])
    reader = Reader(DICT, statistics, channels_last=["image"])
    assert [(port.name, port.shape, port.dtype) for port in reader.ports] == [
        ("observation.vector", (3,), "float64"),
        ("observation.image", (8, 6, 3), "uint8"),
        ("observation.which", (), "int64"),
    ]
    rows = [reader.raw_space.sample() for _ in range(4)]
    raw = {key: np.stack([row[key] for row in rows]) for key in DICT.spaces}
    seen = reader(tuple(map(torch.from_numpy, raw.values())))
    np.testing.assert_array_equal(seen["vector"].numpy(), statistics.normalize_obs(raw)["vector"])
    np.testing.assert_array_equal(seen["image"].numpy(), np.moveaxis(raw["image"], -1, 1))
    np.testing.assert_array_equal(seen["which"].numpy(), raw["which"])
