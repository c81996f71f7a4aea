"""Every parameter of every config of RLlib is read by something here, or refused by a sentence that names it.

``rllib_settings.json`` has RLlib's parameters and defaults, as ``record_settings.py`` wrote them down.
"""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from polyak.compat.rllib_face import CONFIGS, AlgorithmConfig
from polyak.compat.rllib_face.config import unread
from polyak.compat.rllib_face.config.base import _hints
from polyak.compat.rllib_face.learner_groups import learns_with
from polyak.compat.rllib_face.places import check_processes
from polyak.compat.rllib_face.processes import acting, learners, runners
from polyak.compat.rllib_face.processes.evaluators import RemoteEvaluators
from polyak.compat.rllib_face.trainables import config_class
from polyak.compat.rllib_face.tuning import bundles
from polyak.experience import collect

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "rllib_settings.json").read_text())
ALGORITHMS = [name for name in RECORDED if name in CONFIGS]
OTHERS = (True, False, 7, 0.25, "another", {"another": 7}, [7], print)
"""Values of all kinds, of which some are away from any default."""
SETS = {"to_dict", "copy", "changed", "changed_values", "_put", "_checked", "_set", "__repr__", "get_config_for_module"}
"""Methods that handle all settings alike, as does ``validate`` those that were given."""
READ_BY_PROGRAMS = {"learner_config_dict"}
"""Settings that are there for a program's own learner to read."""
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "DQN": [{"num_atoms": 5, "noisy": True}, {"replay_buffer_config": {"num_replay_buffer_shards": 1}}],
    "SAC": [{"replay_buffer_config": {"num_replay_buffer_shards": 1}}],
    "TQC": [{"replay_buffer_config": {"num_replay_buffer_shards": 1}}],
    "IMPALA": [{"opt_type": "rmsprop"}],
    "APPO": [{"opt_type": "rmsprop", "use_kl_loss": True}],
    "CQL": [{"lagrangian": True}],
}
"""Settings with which others are read."""


def settings_of(algorithm: str) -> dict[str, Any]:
    """Setting -> (method, whether it is given up, default)."""
    return {**RECORDED["all"], **RECORDED[algorithm]}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_nothing_reads_asks_for_nothing_or_is_refused_by_name(algorithm: str) -> None:
    cls = config_class(algorithm)
    for name, (method, given_up, default) in settings_of(algorithm).items():
        if name in _hints(cls) or name in ("model", "framework") or name in unread.RENAMED:
            continue
        plain = cls().to_dict()
        asks = getattr(cls(), method)(**{name: -1 if given_up else default})
        assert asks.to_dict() == plain, name
        for other in OTHERS:
            if not unread.asks_for_nothing(name, other, algorithm):
                with pytest.raises(TypeError, match=rf"nothing here reads {name}=.* Use "):
                    getattr(cls(), method)(**{name: other})
        refused = [other for other in OTHERS if not unread.asks_for_nothing(name, other, algorithm)]
        assert len(refused) >= len(OTHERS) - 2, name


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of settings that anything but a config's own bookkeeping has read."""
    found: set[str] = set()

    def recorded(config: Any, name: str) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_name.startswith("<") and frame.f_back is not None:  # within a comprehension
            frame = frame.f_back
        reader = frame.f_code.co_name
        if reader not in SETS and not (reader == "validate" and name in vars(config)["_given"]):
            found.add(name)
        return object.__getattribute__(config, name)

    monkeypatch.setattr(AlgorithmConfig, "__getattribute__", recorded)
    return found


@cache
def recordings() -> str:
    """A file with what was recorded."""
    path = Path(tempfile.mkdtemp(), "recorded.npz")
    atexit.register(shutil.rmtree, path.parent)
    collect("Pendulum-v1", None, 64, seed=0).save(path)
    return str(path)


def small(algorithm: str) -> Any:
    """A config whose training is short."""
    cls: Any = config_class(algorithm)
    continuous = not cls.collects or algorithm in ("SAC", "TQC")
    made = cls().environment("Pendulum-v1" if continuous else "CartPole-v1")
    made.rl_module(model_config={"fcnet_hiddens": [4]}).training(train_batch_size_per_learner=16)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=0)
    made.evaluation(evaluation_interval=1, evaluation_duration=1)
    if not cls.collects:
        made.offline_data(input_=recordings(), dataset_num_iters_per_learner=1, actions_in_input_normalized=False)
    if algorithm == "PPO":
        made.training(minibatch_size=16, num_epochs=1)
    return made


def elsewhere(monkeypatch: pytest.MonkeyPatch, config: Any, algo: Any) -> None:
    """What would be asked of a config by processes of their own, of which there are none."""
    for module, name in ((acting, "Workers"), (runners, "RemoteEnvs"), (learners, "LearnersElsewhere")):
        monkeypatch.setattr(module, name, MagicMock())
    bundles(config)
    check_processes(config.copy(copy_frozen=False))
    RemoteEvaluators(config)
    asks = config.copy(copy_frozen=False).learners(num_learners=1, num_gpus_per_learner=1)
    asks.plain()
    check_processes(asks)
    if type(config).collects:
        asks.env_runners(num_env_runners=1).plain()
        runners.RemoteRunners(asks, runners.environments_elsewhere(asks), MagicMock(), None, False)
        with learns_with(algo.model, None):
            learners.RemoteLearners(config=asks)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.filterwarnings("ignore")
def test_every_setting_is_read_or_has_one_value(
    algorithm: str, reads: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cls: Any = config_class(algorithm)
    with small(algorithm).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        elsewhere(monkeypatch, algo.config, algo)
    for more in VARIANTS.get(algorithm, []):
        small(algorithm).training(**more).plain()
    for name in _hints(cls).keys() - reads - READ_BY_PROGRAMS:
        default = getattr(cls(), name)
        for other in OTHERS:
            if other != default or type(other) is not type(default):
                assert is_refused(algorithm, name, other), (name, other)


def is_refused(algorithm: str, name: str, value: Any) -> bool:
    made = small(algorithm)
    try:
        made.update_from_dict({name: value}).validate()
    except (TypeError, ValueError):
        return True
    return False
