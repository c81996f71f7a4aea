"""What RLlib marks as a program's to override is called here, or refused with the reason.

``overridable.json`` has the names, by RLlib's classes; ``record_overridable.py`` wrote it.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from polyak.algorithms.ppo import PPOLearner
from polyak.compat import rllib_face as scale
from polyak.compat.rllib_face import (
    ConnectorV2,
    DQNConfig,
    FlattenObservations,
    MultiRLModuleSpec,
    PPOConfig,
    PPOTorchLearner,
    RLlibCallback,
    RLModuleSpec,
    SACConfig,
    SACTorchLearner,
    not_called,
)
from polyak.compat.rllib_face.algorithm import Algorithm
from polyak.compat.rllib_face.learners.base import LOSSES, OPTIMIZERS
from polyak.compat.rllib_face.models.catalog import Catalog, DQNCatalog, PPOCatalog
from polyak.compat.rllib_face.models.default_modules import DefaultDQNTorchRLModule, DefaultPPOTorchRLModule
from polyak.hyperparameters.declaration import HyperparameterError

MARKED: dict[str, list[str]] = json.loads((Path(__file__).parent / "overridable.json").read_text())
ELSEWHERE = {
    **dict.fromkeys(
        ["MultiRLModule"], "several agents: an algorithm here trains the module of one, and never makes one"
    ),
    **dict.fromkeys(["DefaultAPPORLModule"], "APPO trains PPO's module"),
    **dict.fromkeys(["DefaultSACRLModule"], "SAC takes no other module"),
}
"""Classes of which an algorithm here takes no subclass."""


def ppo(**settings: Any) -> PPOConfig:
    return small(PPOConfig()).training(
        train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, use_kl_loss=True, **settings
    )


def small(config: Any) -> Any:
    config = config.environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0)
    return config.evaluation(
        evaluation_interval=1,
        evaluation_duration=1,
        evaluation_duration_unit="episodes",
        evaluation_config={"explore": False},
    )


def spied(base: type, names: Iterable[str], calls: Counter[str]) -> type:
    """A subclass whose methods of these names count their calls, and do what they did."""

    def counting(name: str) -> Any:
        kind = inspect.getattr_static(base, name)
        own = kind.__func__ if isinstance(kind, classmethod | staticmethod) else kind

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return own(self, *args, **kwargs)

        return classmethod(method) if isinstance(kind, classmethod) else method

    return type(f"Own{base.__name__}", (base,), {name: counting(name) for name in names})


def trained(config: Any, **build: Any) -> None:
    with config.build_algo(**build) as algo:
        algo.train()


# -- what is called ----------------------------------------------------------------------------------------------------

MODULE = {
    *("setup", "_forward_train", "_forward_exploration", "_forward_inference", "get_initial_state", "is_stateful"),
    *("get_train_action_dist_cls", "get_exploration_action_dist_cls", "get_inference_action_dist_cls"),
    "get_non_inference_attributes",
}
AROUND = {"before_gradient_based_update", "after_gradient_based_update"}
CALLED_ELSEWHERE = {"on_checkpoint_loaded", "on_env_runners_recreated"}
"""Where a checkpoint is loaded, and where runners on Ray have died."""
CALLED: dict[str, set[str]] = {
    "Algorithm": {"get_default_config", "setup", "training_step", "evaluate"},
    "AlgorithmConfig": {
        *("validate", "get_default_rl_module_spec", "get_default_learner_class", "get_rl_module_spec"),
        *("get_multi_rl_module_spec", "build_env_to_module_connector", "build_learner_connector"),
    },
    "ConnectorV2": {*("recompute_output_observation_space", "recompute_output_action_space", "__call__", "get_state")},
    "RLlibCallback": {name for name in vars(RLlibCallback) if name.startswith("on_")} - CALLED_ELSEWHERE,
    "TorchRLModule": MODULE,
    "PPOCatalog": {
        *("_determine_components_hook", "build_actor_critic_encoder", "build_pi_head", "build_vf_head"),
        *("get_action_dist_cls", "_get_dist_cls_from_action_space", "_get_encoder_config"),
    },
    "DQNCatalog": {"_determine_components_hook", "build_encoder", "build_af_head", "build_vf_head"},
    "Learner": {*LOSSES, *OPTIMIZERS, "build", "shutdown", *AROUND},
}


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
@pytest.mark.filterwarnings("ignore:.* runs as it is written")
@pytest.mark.parametrize("face", CALLED)
def test_overrides_are_called(face: str, tmp_path: Path) -> None:
    calls: Counter[str] = Counter()
    names = CALLED[face]
    if face == "Algorithm":
        own = spied(scale.get_trainable_cls("PPO"), names, calls)
        config = own.get_default_config()
        trained(small(config).training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1))
    elif face == "AlgorithmConfig":
        config = spied(PPOConfig, names, calls)()
        trained(small(config).training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1))
    elif face == "ConnectorV2":
        piece = spied(FlattenObservations, names, calls)
        trained(ppo().env_runners(env_to_module_connector=lambda env, spaces, device: piece()))
    elif face == "RLlibCallback":
        trained(ppo().callbacks(spied(RLlibCallback, names, calls)))
    elif face == "TorchRLModule":
        own = spied(DefaultPPOTorchRLModule, names, calls)
        trained(with_spec(ppo(), module_class=own))
    elif face == "PPOCatalog":
        trained(with_spec(ppo(), catalog_class=spied(PPOCatalog, names, calls)))
    elif face == "Learner":
        trained(ppo(learner_class=spied(PPOTorchLearner, names, calls)))
    else:
        config = with_spec(dqn(), catalog_class=spied(DQNCatalog, names, calls))
        trained(config.reporting(min_sample_timesteps_per_iteration=20))
    assert names - set(calls) == set()


def test_callbacks_see_that_a_checkpoint_was_loaded(tmp_path: Path) -> None:
    calls: Counter[str] = Counter()
    with ppo().callbacks(spied(RLlibCallback, ["on_checkpoint_loaded"], calls)).build() as algo:
        algo.restore_from_path(algo.save_to_path(tmp_path))
    assert calls["on_checkpoint_loaded"] == 1


def test_tokenizers_are_asked_for_by_what_remembers() -> None:
    calls: Counter[str] = Counter()
    own = spied(PPOCatalog, ["get_tokenizer_config"], calls)
    options = {"use_lstm": True, "fcnet_hiddens": [4], "lstm_cell_size": 4, "max_seq_len": 8}
    config = ppo().rl_module(model_config=options, rl_module_spec=RLModuleSpec(catalog_class=own))
    config.build_algo().stop()
    assert calls["get_tokenizer_config"] == 1


def test_a_dqn_modules_forward_passes_are_called() -> None:
    calls: Counter[str] = Counter()
    names = [
        *("_forward_exploration", "_forward_inference", "_forward_train", "forward_target", "make_target_networks"),
        *("get_target_network_pairs", "compute_q_values"),
    ]
    own = spied(DefaultDQNTorchRLModule, names, calls)
    own._forward_exploration = lambda self, batch, t: (
        calls.update(["_forward_exploration"])
        or {  # type: ignore[attr-defined]
            "actions": torch.zeros(len(batch["obs"]), dtype=torch.int64)
        }
    )
    config = with_spec(dqn(), module_class=own)
    config.training(num_steps_sampled_before_learning_starts=10, target_network_update_freq=10)
    trained(config.reporting(min_sample_timesteps_per_iteration=40))
    assert set(names) - set(calls) == set()


# -- what is refused ---------------------------------------------------------------------------------------------------


def own(base: type, name: str) -> type:
    return type("Own", (base,), {name: lambda self, *args, **kwargs: None})


def with_spec(config: Any, **spec: Any) -> Any:
    return config.rl_module(rl_module_spec=RLModuleSpec(**spec))


def dqn() -> Any:
    return small(DQNConfig())


def sac() -> Any:
    return SACConfig().environment("Pendulum-v1")


OF_DQN, OF_SAC = (
    {**not_called.OF["dqn_module"], **not_called.OF["module"]},
    {**not_called.OF["torch_learner"], **SACTorchLearner.reasons},
)
REFUSED: list[tuple[str, type, dict[str, str], Any]] = [
    ("AlgorithmConfig", PPOConfig, not_called.OF["config"], lambda cls: small(cls())),
    (
        "Algorithm",
        scale.get_trainable_cls("PPO"),
        not_called.OF["algorithm"],
        lambda cls: small(PPOConfig(algo_class=cls)),
    ),
    ("RLlibCallback", RLlibCallback, not_called.OF["callbacks"], lambda cls: ppo().callbacks(cls)),
    ("TorchRLModule", DefaultPPOTorchRLModule, not_called.OF["module"], lambda cls: with_spec(ppo(), module_class=cls)),
    ("DefaultDQNRLModule", DefaultDQNTorchRLModule, OF_DQN, lambda cls: with_spec(dqn(), module_class=cls)),
    ("PPOCatalog", PPOCatalog, not_called.OF["ppo_catalog"], lambda cls: with_spec(ppo(), catalog_class=cls)),
    ("DQNCatalog", DQNCatalog, not_called.OF["dqn_catalog"], lambda cls: with_spec(dqn(), catalog_class=cls)),
    ("SACCatalog", Catalog, not_called.OF["sac_catalog"], lambda cls: with_spec(sac(), catalog_class=cls)),
    ("MultiRLModuleSpec", MultiRLModuleSpec, not_called.OF["spec"], lambda cls: multi(cls(RLModuleSpec()))),
    ("RLModuleSpec", RLModuleSpec, not_called.OF["spec"], lambda cls: multi(cls())),
    ("ConnectorV2", ConnectorV2, not_called.OF["connector"], lambda cls: ppo(learner_connector=lambda *spaces: cls())),
    ("Learner", PPOTorchLearner, not_called.OF["torch_learner"], lambda cls: ppo(learner_class=cls)),
    ("SACLearner", SACTorchLearner, OF_SAC, lambda cls: sac().training(learner_class=cls)),
    ("polyak's learner", PPOLearner, not_called.OF["learner"], lambda cls: ppo(learner_class=cls)),
]


def multi(spec: Any) -> Any:
    return ppo().rl_module(rl_module_spec=spec)


@pytest.mark.parametrize(
    ("base", "name", "build"), [(base, name, build) for _, base, names, build in REFUSED for name in names]
)
def test_overrides_that_nothing_calls_are_refused(base: type, name: str, build: Any) -> None:
    with pytest.raises(HyperparameterError, match=rf"its {name}\(\) would never be called: \w+"):
        build(own(base, name)).build_algo()


# -- the law -----------------------------------------------------------------------------------------------------------

FACES = {
    "RLModule": ["TorchRLModule"],
    "DefaultPPORLModule": ["TorchRLModule"],
    "Catalog": ["PPOCatalog", "DQNCatalog"],
    **{name: ["Learner"] for name in ("DQNLearner", "IMPALALearner", "PPOLearner", "TorchLearner")},
}
"""Classes of RLlib -> those faces of ours in which what they mark is found, if they are others."""
SEEN = {
    "TorchRLModule": {"_forward"},
    "RLlibCallback": CALLED_ELSEWHERE,
    "PPOCatalog": {"get_tokenizer_config"},
    "DQNCatalog": {"get_tokenizer_config"},
    "DefaultSACRLModule": set(),
}
"""Called as other tests see."""


@pytest.mark.parametrize("theirs", [name for name in MARKED if name not in ELSEWHERE])
def test_every_marked_method_is_called_or_refused(theirs: str) -> None:
    for face in FACES.get(theirs, [theirs]):
        refused = {name for one, _, names, _ in REFUSED if one == face for name in names}
        known = CALLED.get(face, set()) | SEEN.get(face, set()) | refused
        assert set(MARKED[theirs]) - known == set(), face


def test_no_method_is_both() -> None:
    for face, names in CALLED.items():
        refused = {name for one, _, reasons, _ in REFUSED if one == face for name in reasons}
        assert names & refused == set()
    assert issubclass(scale.get_trainable_cls("PPO"), Algorithm)
