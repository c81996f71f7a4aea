"""Algorithms that learn from a dataset alone have no arguments for acting, nor for what they do not look at."""

import inspect
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from polyak.algorithms import get
from polyak.algorithms.dqn import DQN
from polyak.algorithms.sac import SAC
from polyak.algorithms.td3 import TD3
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.changing import FixedHyperparameterError
from tests.trials import trial

ACTING = ("learning_starts", "train_freq", "gradient_steps", "n_steps", "overlap", "action_noise", "use_sde")
NEEDLESS = {
    "bc": (*ACTING, "replay_buffer_class", "buffer_size", "dataset_share", "gamma", "prioritized", "reward_scaling"),
    "fqe": (*ACTING, "replay_buffer_class", "buffer_size", "dataset_share"),
    "decision_transformer": (
        *ACTING,
        *("buffer_size", "dataset_share", "prioritized", "reward_scaling", "replay_buffer_class"),
        "replay_buffer_kwargs",
    ),
    "dagger": (*ACTING, "gamma", "prioritized", "reward_scaling"),
}
ROWS = [(name, argument) for name, arguments in NEEDLESS.items() for argument in arguments]


@pytest.mark.parametrize(("name", "argument"), ROWS)
def test_an_argument_that_it_cannot_use_is_none_of_its_arguments(name: str, argument: str) -> None:
    cls = get(name)
    assert argument not in inspect.signature(cls).parameters
    assert f" {argument} (" not in str(cls.__doc__)
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{argument}': .* no use for one"):
        cls(**trial(cls), **{argument: 77})


@pytest.mark.parametrize("name", NEEDLESS)
def test_older_files_that_hold_such_values_are_loaded(name: str, tmp_path: Path) -> None:
    cls = get(name)
    model = cls(**trial(cls))
    model.save(tmp_path / "model.zip")
    values: dict[str, Any] = dict.fromkeys(NEEDLESS[name], 1)
    rewritten(tmp_path / "model.zip", tmp_path / "old.zip", values)
    loaded = cls.load(tmp_path / "old.zip")
    assert not values.keys() & loaded.hyperparameters().keys()
    with pytest.raises(TypeError, match="'learning_starts'"):
        cls.load(tmp_path / "old.zip", learning_starts=1)
    with pytest.raises(FixedHyperparameterError, match=f"{cls.__name__} has no use for it"):
        loaded.learning_starts = 9


@pytest.mark.parametrize("name", ["bc", "fqe", "decision_transformer"])
def test_what_never_acts_is_no_off_policy_algorithm(name: str) -> None:
    assert issubclass(get(name), OfflineAlgorithm)
    assert not issubclass(get(name), OffPolicyAlgorithm)


@pytest.mark.parametrize("name", ["awac", "iql", "cql", "edac", "td3_bc", "rebrac"])
def test_what_continues_by_acting_is_offline_and_off_policy_and_nothing_between(name: str) -> None:
    *groups, offline, off_policy = get(name).__bases__
    assert (offline, off_policy) == (OfflineAlgorithm, OffPolicyAlgorithm)
    assert {group.__module__ for group in groups} <= {"polyak.fields.actor_critic"}  # fields alone
    assert not issubclass(get(name), SAC | TD3 | DQN)


def rewritten(source: Path, target: Path, values: dict[str, Any]) -> None:
    """A model file with further hyper-parameters, as earlier versions wrote it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "polyak.json":
                info = json.loads(content)
                info["hyperparameters"] |= values
                content = json.dumps(info).encode()
            new.writestr(name, content)
