"""Descriptions are JSON for any program: no infinity, no Python."""

import json

import numpy as np
from gymnasium import spaces

from polyak.nn.export.ports import describe_space


def test_spaces() -> None:
    space = spaces.Dict(
        image=spaces.Box(0, 255, (4, 84, 84), np.uint8),
        free=spaces.Box(np.float32([-np.inf, 0]), np.float32([np.inf, 2.5])),
        pair=spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2))),
        several=spaces.MultiDiscrete([2, 3]),
    )
    found = json.loads(json.dumps(describe_space(space), allow_nan=False))
    assert found == {
        "type": "Dict",
        "spaces": {
            "image": {"type": "Box", "shape": [4, 84, 84], "dtype": "uint8", "low": 0, "high": 255},
            "free": {"type": "Box", "shape": [2], "dtype": "float32", "low": [None, 0.0], "high": [None, 2.5]},
            "pair": {
                "type": "Tuple",
                "spaces": [
                    {"type": "Discrete", "shape": [], "dtype": "int64", "n": 3, "start": -1},
                    {"type": "MultiBinary", "shape": [2], "dtype": "int8"},
                ],
            },
            "several": {"type": "MultiDiscrete", "shape": [2], "dtype": "int64", "nvec": [2, 3], "start": [0, 0]},
        },
    }
