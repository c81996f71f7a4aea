"""Every algorithm with every kind of space, memory and masks: its exported file acts as ``predict`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.algorithms import get
from polyak.envs.nested_spaces import parts
from tests.exported import AS_CLOSE, assert_same_actions, exported_policy, margins
from tests.laws.test_matrix import CELLS, IGNORING_MASKS, NAMES, TABULAR, build, choices, is_refused
from tests.trials import trial

ROWS, STEPS = 50, 20
OBSERVATIONS = ROWS * STEPS
QUICK = {("ppo", "dict action"), ("sac", "memory")}
IMITATING = {"bc", "dagger", "decision_transformer", "marwil"}
"""Their policies choose as the data did, without masks."""
REFUSING = {"alphazero": "looks ahead by the rules", "fqe": "evaluates a policy and has none of its own"}

TABLE = [(name, cell) for name in NAMES for cell in CELLS if not is_refused(name, cell) and name not in REFUSING]


def marked(name: str, cell: str) -> Any:
    return pytest.param(name, cell, marks=[] if (name, cell) in QUICK else [pytest.mark.slow])


def shaken(model: Any) -> Any:
    """The model with weights other than the first ones, whose biases are zero."""
    generator = torch.Generator().manual_seed(5)
    acting = getattr(model, "generator", model)
    with torch.no_grad():
        for parameter in acting.policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def sampled(space: spaces.Space[Any], rows: int) -> Any:
    """Observations [B, ...]"""
    if isinstance(space, spaces.Dict):
        return {key: sampled(part, rows) for key, part in space.spaces.items()}
    return np.stack([space.sample() for _ in range(rows)])


def by_name(observations: Any) -> dict[str, np.ndarray]:
    if not isinstance(observations, dict):
        return {"observation": observations}
    return {f"observation.{key}": part for key, part in observations.items()}


def allowed(space: spaces.Space[Any], rows: int) -> np.ndarray:
    """Masks [B, M] that allow the first choice and some of the others."""
    rng = np.random.default_rng(4)
    drawn = [rng.random((rows, n)) < 0.5 for part in parts(space) for n in choices(part.space)]
    for part in drawn:
        part[:, 0] = True
    return np.concatenate(drawn, 1)


def before(policy: Any, rows: int) -> dict[str, np.ndarray]:
    """The recurrent state [B, ...] that the next call of a file's policy begins with, by name."""
    ports = [port for port in policy.about["inputs"] if port["role"] == "state"]
    values = {port["name"]: policy.state.get(port["name"], port["initial"]) for port in ports}
    shapes = {port["name"]: (rows, *port["shape"][1:]) for port in ports}
    return {p["name"]: np.broadcast_to(np.asarray(values[p["name"]], p["dtype"]), shapes[p["name"]]) for p in ports}


@pytest.mark.filterwarnings("ignore:the environment says which actions it allows")
@pytest.mark.parametrize(("name", "cell"), [marked(*row) for row in TABLE])
def test_a_file_acts_as_predict_does(name: str, cell: str, tmp_path: Path) -> None:
    model = shaken(build(name, cell))
    graph = model.acting_graph()
    described = model.export(tmp_path / "policy.onnx")
    policy = exported_policy(tmp_path / "policy.onnx")
    assert policy.about == described
    roles = {port["role"] for port in described["inputs"]}
    if cell == "mask":
        assert ("action_masks" in roles) == (name not in IGNORING_MASKS | IMITATING)
    rows, steps = (ROWS, STEPS) if "state" in roles else (OBSERVATIONS, 1)
    graph.observation_space.seed(2)
    state, tied = None, np.zeros(rows, bool)
    for _ in range(steps):
        observations = sampled(graph.observation_space, rows)
        more = {"action_masks": allowed(model.action_space, rows)} if "action_masks" in roles else {}
        tied |= margins(graph, {**by_name(observations), **more, **before(policy, rows)}) < AS_CLOSE
        theirs, state = model.predict(observations, state, deterministic=True, **more)
        assert_same_actions(model.action_space, policy(observations, **more), theirs, tied)
    assert tied.mean() <= 0.01  # more than that would leave little to compare


@pytest.mark.parametrize("name", sorted(REFUSING))
def test_what_does_not_act_by_a_graph_says_so(name: str, tmp_path: Path) -> None:
    model = get(name)(**trial(get(name)))
    with pytest.raises(ValueError, match=REFUSING[name]):
        model.export(tmp_path / "policy.onnx")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "kind"), [marked(name, "table") for name in sorted(TABULAR)])
def test_a_table_is_a_graph_too(name: str, kind: str, tmp_path: Path) -> None:
    model = get(name)(**trial(get(name))).learn(200)
    model.export(tmp_path / "policy.onnx", masks=True)
    policy, space = exported_policy(tmp_path / "policy.onnx"), model.observation_space
    states = np.arange(space.n)
    masks = allowed(model.action_space, space.n)
    np.testing.assert_array_equal(
        policy(states, masks), model.predict(states, deterministic=True, action_masks=masks)[0]
    )
    model.export(tmp_path / "policy.onnx")
    np.testing.assert_array_equal(exported_policy(tmp_path / "policy.onnx")(states), model.greedy)
