"""What programs import from RLlib's utils; expected values are those that RLlib 2.60 gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.rllib.utils import metrics, typing
from polyak.compat.rllib_face import PPOConfig, RLlibCallback
from polyak.compat.rllib_face.annotations import OverrideToImplementCustomLogic, PublicAPI, override
from polyak.compat.rllib_face.tensors import (
    convert_to_numpy,
    convert_to_torch_tensor,
    explained_variance,
    get_activation_fn,
    one_hot,
    try_import_tf,
)
from polyak.hyperparameters.declaration import HyperparameterError


def test_override_is_checked_and_changes_nothing() -> None:
    class Own(RLlibCallback):
        @override(RLlibCallback)
        def on_train_result(self, **known: Any) -> str:
            return "called"

    assert Own().on_train_result() == "called"
    assert Own.on_train_result.__name__ == "on_train_result"
    for base, name, kind, said in (
        (RLlibCallback, "on_dream", NameError, "override(RLlibCallback) of on_dream"),
        (object, "on_train_result", TypeError, "Own is no subclass"),
    ):
        with pytest.raises((RuntimeError, kind)) as raised:
            type("Own", (base,), {name: override(RLlibCallback)(lambda self: None)})
        error = raised.value.__cause__ or raised.value  # the cause of another one before Python 3.12
        assert isinstance(error, kind)
        assert said in str(error)
    assert PublicAPI(Own) is PublicAPI(stability="alpha")(Own) is OverrideToImplementCustomLogic(Own) is Own


def test_trees_are_converted() -> None:
    tree = {"a": np.zeros(2), "b": [1, 2], "c": (True, 1.5), "d": None, "e": "x"}
    found = convert_to_torch_tensor(tree)
    assert found["a"].dtype == found["c"][1].dtype == torch.float32
    assert [one.dtype for one in found["b"]] == [torch.int64, torch.int64]
    assert found["c"][0].dtype == torch.bool
    assert (found["d"], found["e"]) == (None, "x")
    back = convert_to_numpy({**found, "f": torch.tensor([3]), "g": torch.tensor(3), "h": 1.0})
    assert back["a"].dtype == np.float32
    assert back["f"].dtype == np.int32
    assert (type(back["g"]), type(back["h"]), back["b"]) == (int, float, [1, 2])
    assert convert_to_numpy(torch.zeros(2, dtype=torch.float64), reduce_type=False).dtype == np.float64


def test_choices_and_variances() -> None:
    assert one_hot(torch.tensor([1, 2]), spaces.Discrete(3)).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert one_hot(torch.tensor([[1, 0]]), spaces.MultiDiscrete([3, 2])).tolist() == [[0, 1, 0, 1, 0]]
    with pytest.raises(HyperparameterError, match="give a Discrete or a MultiDiscrete"):
        one_hot(torch.zeros(1), spaces.Box(0, 1))
    y, pred = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 2.0])
    assert explained_variance(y, pred).item() == pytest.approx(3 / 7, abs=1e-6)
    assert explained_variance(y, -10 * y).item() == -1
    assert get_activation_fn("swish") is torch.nn.SiLU
    assert get_activation_fn("linear") is None
    assert try_import_tf() == (None, None, None)
    with pytest.raises(ImportError, match="PyTorch"):
        try_import_tf(error=True)


def test_keys_are_those_of_results() -> None:
    config = PPOConfig().environment("CartPole-v1").debugging(seed=0)
    config.evaluation(evaluation_interval=1, evaluation_duration=1)
    with config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1).build() as algo:
        result = algo.train()

    def keys(tree: Any) -> set[str]:
        parts = [keys(part) for part in tree.values() if isinstance(part, dict)]
        return {str(key) for key in tree}.union(*parts)

    named = {value for name, value in vars(metrics).items() if name.isupper()}
    assert len(named) > 30
    assert named <= keys(result)
    assert result[metrics.EVALUATION_RESULTS][metrics.ENV_RUNNER_RESULTS][metrics.EPISODE_RETURN_MEAN] > 0
    assert typing.ModuleID is str
