"""The runner of ``examples/deployment``, which tests act with, and comparison with what a model does itself."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.overrides import TorchFunctionMode

from polyak.envs.nested_spaces import parts
from polyak.nn.export.ports import Graph

RUNNER = Path(__file__).parents[1] / "examples" / "deployment" / "exported_policy.py"
AS_CLOSE = 1e-5
"""Largest difference of actions of the size of 1: some 80 roundings of float32. Networks of the tests have two layers
of 16 units and a head, or convolutions before them; recurrent steps forget rounding, since gates are below 1."""


def exported_policy(path: Path) -> Any:
    """The runner's policy of a file."""
    spec = spec_from_file_location("exported_policy", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ExportedPolicy(str(path))


class Margins(TorchFunctionMode):
    """Notes by how little the closest choice of each row was made, relative to the scores.

    Two that are as close as rounding are a tie, which another order of additions may break the other way.
    """

    def __init__(self, rows: int) -> None:
        self.found = np.full(rows, np.inf)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.argmax:
            dim = args[1] if len(args) > 1 else (kwargs or {})["dim"]
            best, second = args[0].topk(2, dim=dim).values.unbind(dim)
            self._note((best - second) / best.abs().clamp(min=1))
        elif function is torch.Tensor.__gt__:  # a coin
            self._note(args[0].abs())
        return function(*args, **(kwargs or {}))

    def _note(self, margins: torch.Tensor) -> None:
        rows = margins.reshape(len(self.found), -1).amin(1)
        self.found = np.minimum(self.found, rows.numpy())


def margins(graph: Graph, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Those of the graph in torch, for inputs [B, ...] by name: [B]."""
    tensors = [torch.from_numpy(np.array(inputs[port.name])) for port in graph.inputs]
    with torch.no_grad(), Margins(len(tensors[0])) as mode:
        graph(*tensors)
    return mode.found


def assert_same_actions(space: spaces.Space[Any], ours: Any, theirs: Any, tied: np.ndarray) -> None:
    """Actions [B, ...] that a file gave and those of ``predict``, where no choice was ``tied`` [B]: numbers as close as
    rounding, choices equal."""
    for part in parts(space):
        mine = ours[f"action.{part.name}"] if part.path else ours
        other = np.stack([part.of(action) for action in theirs]) if part.path else np.asarray(theirs)
        assert mine.dtype == part.space.dtype
        assert mine.shape == other.shape
        if isinstance(part.space, spaces.Box):
            np.testing.assert_allclose(mine[~tied], other[~tied], rtol=AS_CLOSE, atol=AS_CLOSE)
        else:
            np.testing.assert_array_equal(mine[~tied], other[~tied])
