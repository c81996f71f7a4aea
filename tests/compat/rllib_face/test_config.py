"""The builder: what it sets, what it refuses, and what its settings come to in polyak's own words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyak.algorithms.c51 import C51
from polyak.algorithms.dqn import DQN
from polyak.algorithms.ppo import PPO, PPOLearner
from polyak.compat.rllib_face import (
    AlgorithmConfig,
    APPOConfig,
    BCConfig,
    CQLConfig,
    DefaultModelConfig,
    DQNConfig,
    IMPALAConfig,
    IQLConfig,
    MARWILConfig,
    NotThereYetError,
    PPOConfig,
    RainbowConfig,
    RLModuleSpec,
    SACConfig,
    TQCConfig,
    get_trainable_cls,
)
from polyak.compat.rllib_face.config.base import HORIZON
from polyak.compat.rllib_face.config.unread import NotProvided
from polyak.schedules import PiecewiseSchedule
from tests.warm import python

CONFIGS: list[type[AlgorithmConfig]] = [PPOConfig, DQNConfig, RainbowConfig, SACConfig, IMPALAConfig, APPOConfig]
CONFIGS += [BCConfig, MARWILConfig, CQLConfig, IQLConfig, TQCConfig]
NOTEBOOK: dict[str, dict[str, Any]] = {
    "Rainbow_DQN": {
        "target_network_update_freq": 500,
        "replay_buffer_config": {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 60000,
            "alpha": 0.5,
            "beta": 0.5,
        },
        "epsilon": [[0, 1.0], [1000000, 0.1]],
        "adam_epsilon": 1e-8,
        "grad_clip": 40.0,
        "num_steps_sampled_before_learning_starts": 10000,
        "tau": 1,
        "num_atoms": 51,
        "v_min": -10.0,
        "v_max": 10.0,
        "noisy": True,
        "sigma0": 0.5,
        "dueling": True,
        "hiddens": [512],
        "double_q": True,
        "n_step": 3,
    },
    "DQN": {},
    "Double_DQN": {"double_q": True},
    "Dueling_DQN": {"dueling": True},
    "DQN_PER": {
        "replay_buffer_config": {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 60000, "alpha": 0.5, "beta": 0.5}
    },
    "Noisy_DQN": {"noisy": True},
    "DQN_C51": {"num_atoms": 51, "v_min": -10.0, "v_max": 10.0},
}
"""What a user's notebook passes to ``training()``, algorithm by algorithm."""


# -- setting -----------------------------------------------------------------------------------------------------------


def test_methods_return_the_config_and_settings_are_attributes() -> None:
    config = PPOConfig()
    same = config.environment("CartPole-v1").training(lr=1e-3, clip_param=0.1).framework("torch").debugging(seed=3)
    assert same is config
    assert (config.env, config.lr, config["clip_param"], config.get("seed")) == ("CartPole-v1", 1e-3, 0.1, 3)
    assert config.get("no such setting", 7) == 7
    config.gamma = 0.9
    assert config.gamma == 0.9


@pytest.mark.parametrize("cls", CONFIGS)
def test_a_config_and_its_copy_do_not_share_settings(cls: type[AlgorithmConfig]) -> None:
    config = cls().training(gamma=0.5)
    other = config.copy()
    other.training(gamma=0.6)
    other.env_config["x"] = 1
    assert (config.gamma, config.env_config, cls().env_config) == (0.5, {}, {})


def test_a_frozen_config_refuses_changes() -> None:
    config = PPOConfig()
    config.freeze()
    for change in (lambda: config.training(lr=1.0), lambda: setattr(config, "lr", 1.0)):
        with pytest.raises(AttributeError, match="frozen"):
            change()
    assert config.is_frozen
    assert config.copy().is_frozen
    assert config.copy(copy_frozen=False).training(lr=1.0).lr == 1.0


@pytest.mark.parametrize("cls", CONFIGS)
def test_dicts_hold_all_settings(cls: type[AlgorithmConfig]) -> None:
    config = cls().training(gamma=0.5).environment("CartPole-v1")
    assert cls.from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert config.overrides(explore=False, env="x") == {"explore": False, "env": "x"}


@pytest.mark.parametrize("cls", CONFIGS)
def test_help_names_each_setting_with_its_sentence(cls: type[AlgorithmConfig]) -> None:
    for group in ("training", "env_runners", "evaluation", "callbacks", "offline_data"):
        method: Any = getattr(cls, group)
        for name in cls._settings_of(group):
            entry = next(line for line in method.__doc__.splitlines() if line.startswith(f"    {name} ("))
            assert entry
    assert "arXiv" in str(PPOConfig.__doc__)


# -- refusing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda c: c.training(clip_parm=0.1), TypeError, "Did you mean 'clip_param'"),
        (lambda c: c.training(num_env_runners=1), TypeError, r"env_runners\(\) sets"),
        (lambda c: c.env_runners(num_rollout_workers=1), TypeError, "Use num_env_runners"),
        (lambda c: c.training(sgd_minibatch_size=1), TypeError, "Use minibatch_size"),
        (lambda c: c.training(vf_share_layers=True), TypeError, "model_config"),
        (lambda c: c.training(lr=-1), ValueError, "lr=-1"),
        (lambda c: c.training(lr="3e-4"), ValueError, "without quotes"),
        (lambda c: c.training(3e-4), TypeError, "by name"),
        (lambda c: c.training(grad_clip_by="all"), ValueError, "global_norm"),
        (lambda c: c.api_stack(enable_rl_module_and_learner=False), ValueError, "enable_rl_module_and_learner"),
        (lambda c: c.framework("tf2"), ValueError, "torch"),
        (lambda c: c.offline_data(input_="data/"), ValueError, "sampler"),
        (lambda c: c.evaluation(evaluation_duration="long"), ValueError, "evaluation_duration"),
        (lambda c: c.env_runners(batch_mode="episodes"), ValueError, "complete_episodes"),
        (lambda c: c.rollouts(), AttributeError, "env_runners"),
        (lambda c: c.multi_agent(policies={}), TypeError, "one agent"),
        (lambda c: c.trainig(lr=1), AttributeError, "Did you mean 'training'"),
        (lambda c: c["clip"], KeyError, "clip"),
        (lambda c: PPOConfig.from_dict({"model": {"custom_model": "a"}}), TypeError, "model_config"),
        (lambda c: setattr(c, "learning_rate", 1), TypeError, "learning_rate"),
    ],
)
def test_what_is_no_setting_or_cannot_be_is_refused(change: Any, error: type[Exception], words: str) -> None:
    config = PPOConfig()
    with pytest.raises(error, match=words):
        change(config)
    assert config.to_dict() == PPOConfig().to_dict()


@pytest.mark.parametrize("cls", [DQNConfig, SACConfig, IMPALAConfig, APPOConfig])
def test_rows_are_not_shuffled_between_passes_that_there_are_not(cls: type[AlgorithmConfig]) -> None:
    with pytest.raises(ValueError, match="shuffle_batch_per_epoch=True.*of which there is one"):
        cls().training(shuffle_batch_per_epoch=True)


def test_of_several_settings_all_are_set_or_none() -> None:
    config = PPOConfig()
    with pytest.raises(ValueError, match="gamma"):
        config.training(lr=1.0, gamma=2)
    assert config.lr == PPOConfig().lr


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (PPOConfig().rl_module(model_config={"fcnet_hidden": [4]}), "Did you mean 'fcnet_hiddens'"),
        (PPOConfig().rl_module(model_config={"post_fcnet_hiddens": [4]}), "Use head_fcnet_hiddens"),
        (PPOConfig().rl_module(model_config={"fcnet_hiddens": 4}), "fcnet_hiddens"),
        (PPOConfig().rl_module(model_config={"fcnet_activation": "rele"}), "Did you mean 'relu'"),
        (PPOConfig().rl_module(model_config={"lstm_use_prev_action": True}), "lstm_use_prev_action"),
        (PPOConfig().rl_module(model_config={"use_lstm": "yes"}), "use_lstm"),
        (PPOConfig().rl_module(rl_module_spec=PPO), "RLModuleSpec"),
        (PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=PPO)), "TorchRLModule"),  # type: ignore[arg-type]
        (PPOConfig().rl_module(rl_module_spec=RLModuleSpec(catalog_class=PPO)), "PPOCatalog"),
        (PPOConfig().rl_module(rl_module_spec=RLModuleSpec(inference_only=True)), "inference_only"),
        (PPOConfig().training(minibatch_size=5000), "minibatch_size"),
        (PPOConfig().training(train_batch_size=100), "train_batch_size"),
        (PPOConfig().training(learner_class=PPO), "PPOLearner"),
        (PPOConfig().training(lr=[[0, 1e-3], [0, 1e-4]]), "steps that grow"),
        (PPOConfig().training(lr=[[10, 1e-3]]), "steps that grow"),
        (PPOConfig().training(lr=[1e-3]), "first value"),
        (PPOConfig().training(lr=None), "lr=None"),
        (PPOConfig().evaluation(evaluation_config={"lr": 1}), "evaluation reads only"),
        (PPOConfig().evaluation(evaluation_config={"explore": "no"}), "explore"),
        (PPOConfig().evaluation(evaluation_parallel_to_training=True), "evaluation_num_env_runners"),
        (PPOConfig().evaluation(evaluation_duration="auto"), "evaluation_parallel_to_training"),
        (
            PPOConfig().evaluation(evaluation_num_env_runners=1, custom_evaluation_function=print),
            "evaluation_num_env_runners=0",
        ),
        (DQNConfig().training(replay_buffer_config={"learning_starts": 5}), "num_steps_sampled_before"),
        (DQNConfig().training(replay_buffer_config={"capaciti": 5}), "Did you mean 'capacity'"),
        (DQNConfig().training(replay_buffer_config={"capacity": 0}), "capacity"),
        (DQNConfig().training(replay_buffer_config={"alpha": 2.0}), "alpha"),
        (DQNConfig().training(epsilon=[[0, 2.0], [10, 0.1]]), "probability"),
        (DQNConfig().training(minibatch_size=5), "minibatch_size"),
        (DQNConfig().training(burn_in_len=5), "use_lstm"),
        (DQNConfig().training(hiddens=[3]).rl_module(model_config={"head_fcnet_hiddens": [4]}), "says otherwise"),
        (DQNConfig().training(hiddens=[0]), "hiddens"),
        (SACConfig().rl_module(model_config={"vf_share_layers": True}), "do not read"),
    ],
)
def test_settings_that_cannot_be_together_are_refused(config: AlgorithmConfig, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config.validate()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (PPOConfig().learners(num_aggregator_actors_per_learner=1), "num_aggregator_actors_per_learner=1"),
        (PPOConfig().env_runners(num_env_runners=1, create_env_on_local_worker=True), "create_env_on_local_worker"),
    ],
)
def test_more_processes_are_understood_and_not_there_yet(config: AlgorithmConfig, words: str) -> None:
    config.validate()
    with pytest.raises(NotThereYetError, match=words):
        config.environment("CartPole-v1").build_algo()


def test_algorithms_by_name() -> None:
    assert type(get_trainable_cls("PPO").get_default_config()) is PPOConfig
    assert get_trainable_cls("DQN") is get_trainable_cls("DQN")
    with pytest.raises(NotThereYetError, match="DreamerV3 has no config yet. There are .*PPO"):
        get_trainable_cls("DreamerV3")
    with pytest.raises(ValueError, match="Did you mean 'PPO'"):
        get_trainable_cls("PPOO")


# -- in polyak's words -------------------------------------------------------------------------------------------------

OTHER: dict[str, Any] = {
    "gamma": 0.9,
    "lr": 1e-2,
    "actor_lr": 1e-2,
    "critic_lr": 1e-2,
    "alpha_lr": 1e-2,
    "grad_clip": 3.0,
    "train_batch_size_per_learner": 640,
    "num_epochs": 2,
    "minibatch_size": None,
    "shuffle_batch_per_epoch": False,
    "use_critic": False,
    "use_gae": False,
    "lambda_": 0.5,
    "use_kl_loss": False,
    "kl_coeff": 0.5,
    "kl_target": 0.5,
    "vf_loss_coeff": 0.6,
    "entropy_coeff": 0.5,
    "clip_param": 0.5,
    "vf_clip_param": 3.0,
    "target_network_update_freq": 70,
    "tau": 0.5,
    "num_steps_sampled_before_learning_starts": 70,
    "n_step": (1, 4),
    "training_intensity": 64.0,
    "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 70},
    "epsilon": 0.3,
    "adam_epsilon": 1e-3,
    "num_atoms": 7,
    "noisy": True,
    "dueling": False,
    "hiddens": [7],
    "double_q": False,
    "twin_q": False,
    "n_quantiles": 7,
    "n_critics": 3,
    "top_quantiles_to_drop_per_net": 1,
    "initial_alpha": 0.5,
    "target_entropy": -0.5,
    "vtrace_clip_rho_threshold": 0.5,
    "vtrace_clip_pg_rho_threshold": 0.5,
    "learner_queue_size": 5,
    "broadcast_interval": 2,
    "opt_type": "rmsprop",
    "target_worker_clipping": 3.0,
    "circular_buffer_num_batches": 3,
    "circular_buffer_iterations_per_batch": 3,
    "beta": 0.5,
    "bc_logstd_coeff": 0.1,
    "moving_average_sqd_adv_norm_update_rate": 0.5,
    "moving_average_sqd_adv_norm_start": 3.0,
    "vf_coeff": 0.6,
    "bc_iters": 3,
    "temperature": 0.5,
    "num_actions": 3,
    "lagrangian": True,
    "min_q_weight": 2.0,
    "deterministic_backup": False,
}
ELSEWHERE = {
    "train_batch_size": "where the size for each learner is None",
    "store_buffer_in_checkpoints": "tested with checkpoints",
    "v_min": "needs atoms",
    "v_max": "needs atoms",
    "sigma0": "needs noise",
    "burn_in_len": "needs a memory",
    "learner_class": "tested below",
    "learner_connector": "read by what is built: tests/compat/rllib_face/test_connectors.py",
    "learner_config_dict": "read by a learner of one's own: tests/compat/rllib_face/test_torch_learners.py",
    "decay": "needs RMSprop",
    "momentum": "needs RMSprop",
    "epsilon": "of IMPALA needs RMSprop",
    "lagrangian_thresh": "needs a multiplier",
}
CONSTANT = {"grad_clip_by", "td_error_loss_fn", "before_learn_on_batch"}
CONSTANT |= {"categorical_distribution_temperature", "vtrace", "use_circular_buffer"}


ONE_PASS = {"num_epochs", "minibatch_size", "shuffle_batch_per_epoch"}
RECORDED = {*ONE_PASS, "burnin_len", "replay_buffer_config", "training_intensity"}
RECORDED |= {"num_steps_sampled_before_learning_starts"}
FIXED: dict[type[AlgorithmConfig], set[str]] = {
    PPOConfig: set(),
    DQNConfig: ONE_PASS,
    SACConfig: ONE_PASS | {"lr", "grad_clip"},
    TQCConfig: ONE_PASS | {"lr", "grad_clip", "twin_q"},
    IMPALAConfig: ONE_PASS,
    APPOConfig: ONE_PASS,
    MARWILConfig: RECORDED,
    CQLConfig: RECORDED | {"lr", "grad_clip"},
}
FIXED[BCConfig] = RECORDED | {"beta", "gamma", "vf_coeff"}
FIXED[BCConfig] |= {f"moving_average_sqd_adv_norm_{which}" for which in ("update_rate", "start")}
"""Settings that have one value, or that the algorithm has no use for."""


@pytest.mark.parametrize("cls", FIXED)
def test_every_setting_of_training_changes_what_is_built(cls: type[AlgorithmConfig]) -> None:
    """What is accepted and never read would be found here."""
    elsewhere = ELSEWHERE.keys() - ({"epsilon"} if cls is DQNConfig else set())
    for name in set(cls._settings_of("training")) - CONSTANT - elsewhere - FIXED[cls]:
        config = cls().training(lambda_=0.5) if name == "use_gae" else cls()
        if cls is APPOConfig and name in ("use_kl_loss", "kl_coeff", "kl_target"):
            config.training(use_kl_loss=True)
        before = repr(config.plain())
        value = 7000 if cls is CQLConfig and name == "target_network_update_freq" else OTHER[name]
        config.training(**{name: value})
        assert repr(config.plain()) != before, name


def test_settings_that_need_others_change_what_is_built() -> None:
    atoms, noise = DQNConfig().training(num_atoms=5), DQNConfig().training(noisy=True)
    root = IMPALAConfig().training(opt_type="rmsprop")
    memory = DQNConfig().rl_module(model_config={"use_lstm": True})
    for config, changes in (
        (atoms, {"v_min": -1.0}),
        (atoms, {"v_max": 1.0}),
        (noise, {"sigma0": 0.1}),
        (memory, {"burn_in_len": 3}),
        *((root, {name: 0.5}) for name in ("decay", "momentum", "epsilon")),
        (PPOConfig().training(train_batch_size_per_learner=None), {"train_batch_size": 640}),
    ):
        assert repr(config.copy().training(**changes).plain()) != repr(config.plain()), changes


def test_a_learner_of_ones_own_is_what_learns() -> None:
    class Own(PPOLearner):
        pass

    algorithm = PPOConfig().training(learner_class=Own, vf_clip_param=None).plain().algorithm
    assert issubclass(algorithm, PPO)
    assert algorithm.learner_class is Own


def test_configs_of_ones_own_may_have_settings_of_their_own() -> None:
    class Own(PPOConfig):
        def __init__(self, algo_class: Any = None) -> None:
            super().__init__(algo_class)
            self.episodes_per_batch = 10
            self.clip_param = 0.1

        def training(self, *, episodes_per_batch: Any = NotProvided, **others: Any) -> Any:
            super().training(**others)
            if episodes_per_batch is not NotProvided:
                self.episodes_per_batch = episodes_per_batch
            return self

    config = Own().training(episodes_per_batch=3, gamma=NotProvided, lr=1e-3)
    other = config.copy()
    other.episodes_per_batch = 4
    assert (config.episodes_per_batch, other.episodes_per_batch, other.lr, other.clip_param) == (3, 4, 1e-3, 0.1)
    assert config.to_dict()["episodes_per_batch"] == 3
    assert Own.from_dict({"episodes_per_batch": 5}).episodes_per_batch == 5
    for wrong in (lambda: setattr(config, "clip_parm", 0.2), lambda: setattr(PPOConfig(), "episodes_per_batch", 3)):
        with pytest.raises(TypeError, match="unexpected setting"):
            wrong()
    other.freeze()
    with pytest.raises(AttributeError, match="frozen"):
        other.episodes_per_batch = 5


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_an_algorithm_is_made_of_a_dict_of_settings() -> None:
    seen: list[str] = []
    settings = {"lr": 1e-3, "model_config": {"fcnet_hiddens": [4]}, "num_env_runners": 0}
    settings["on_algorithm_init"] = [lambda **_: seen.append("one"), lambda **_: seen.append("other")]
    with get_trainable_cls("PPO")(config=settings, env="CartPole-v1") as algo:
        assert (algo.config.lr, algo.config.env, algo.config.clip_param) == (1e-3, "CartPole-v1", 0.3)
    assert seen == ["one", "other"]
    with pytest.raises(TypeError, match="Did you mean 'clip_param'"):
        get_trainable_cls("PPO")(config={"clip_parm": 0.1})


def test_ppo_in_polyaks_words() -> None:
    algorithm, _, kwargs = PPOConfig().environment("CartPole-v1").training(vf_clip_param=float("inf")).plain()
    assert algorithm is PPO
    expected = {"learning_rate": 5e-5, "n_steps": 4000, "batch_size": 128, "n_epochs": 30, "gae_lambda": 1.0}
    expected |= {"clip_range": 0.3, "clip_range_vf": None, "vf_coef": 1.0, "max_grad_norm": None, "kl_coef": 0.2}
    assert {name: kwargs[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("environments", "fragment", "steps"), [(1, "auto", 4000), (3, "auto", 1334), (4, 300, 1200), (1, 64, 4032)]
)
def test_a_rollout_has_at_least_the_rows_of_a_batch(environments: int, fragment: Any, steps: int) -> None:
    config = PPOConfig().env_runners(num_envs_per_env_runner=environments, rollout_fragment_length=fragment)
    assert config.plain().kwargs["n_steps"] == steps


def test_the_notebooks_rainbow_in_polyaks_words() -> None:
    algorithm, _, kwargs = DQNConfig().training(**NOTEBOOK["Rainbow_DQN"]).plain()
    assert algorithm is C51
    expected = {"n_atoms": 51, "v_min": -10.0, "v_max": 10.0, "noisy": True, "sigma0": 0.5, "double": True}
    expected |= {"dueling": True, "n_steps": 3, "train_freq": 3, "gradient_steps": 1, "buffer_size": 60000}
    expected |= {"prioritized": {"alpha": 0.5, "beta": 0.5, "final_beta": 0.5}, "target_update_interval": 500}
    expected |= {"learning_starts": 9999, "tau": 1.0, "max_grad_norm": 40.0, "batch_size": 32}
    assert {name: kwargs[name] for name in expected} == expected
    assert not any(name.startswith("exploration") for name in kwargs), "noise takes the place of random actions"
    assert kwargs["policy_kwargs"]["model_config"]["head_fcnet_hiddens"] == [512]


@pytest.mark.parametrize("name", sorted(NOTEBOOK))
def test_the_notebooks_settings_are_valid(name: str) -> None:
    config = DQNConfig().environment("CartPole-v1").training(**NOTEBOOK[name])
    config.validate()
    assert config.plain().algorithm is (C51 if "num_atoms" in NOTEBOOK[name] else DQN)


@pytest.mark.parametrize(
    ("intensity", "freq", "updates"), [(None, 4, 1), (8.0, 4, 1), (32.0, 4, 4), (1.0, 32, 1), (12.0, 4, 2)]
)
def test_intensity_is_rows_learned_from_for_each_collected(intensity: Any, freq: int, updates: int) -> None:
    config = DQNConfig().env_runners(rollout_fragment_length=4).training(training_intensity=intensity)
    kwargs = config.plain().kwargs
    assert (kwargs["train_freq"], kwargs["gradient_steps"]) == (freq, updates)


def test_points_become_a_schedule_by_environment_steps() -> None:
    config = PPOConfig().training(lr=[[0, 1e-3], [1000, 1e-4], [3000, 0.0]], entropy_coeff=[[0, 0.1], [500, 0.0]])
    lr, entropy = config.schedule("lr"), config.schedule("entropy_coeff")
    assert isinstance(lr, PiecewiseSchedule)
    for step, value in ((0, 1e-3), (500, 5.5e-4), (1000, 1e-4), (2000, 5e-5), (3000, 0.0), (9999, 0.0)):
        assert lr(1 - step / HORIZON) == pytest.approx(value, abs=1e-12)
    assert entropy(1 - 250 / HORIZON) == pytest.approx(0.05)
    assert config.plain().kwargs["learning_rate"] == lr


def test_options_of_models_may_be_a_dataclass() -> None:
    by_dict = PPOConfig().rl_module(model_config={"fcnet_hiddens": [8], "vf_share_layers": True}).plain()
    by_class = PPOConfig().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8])).plain()
    assert by_dict.kwargs == by_class.kwargs


def test_nothing_imports_ray() -> None:
    code = (
        "import sys; from polyak.compat.rllib_face import *; from polyak.compat.rllib_face import PPOConfig\n"
        "algo = PPOConfig().environment('CartPole-v1').training(train_batch_size_per_learner=64, minibatch_size=64,"
        " num_epochs=1).build()\n"
        "algo.train(); algo.stop()\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'ray'])"
    )
    assert python(["-c", code], check=True).stdout.strip() == "[]"


def test_a_gpu_is_asked_for_by_the_learner() -> None:
    assert PPOConfig().plain().kwargs["device"] == "cpu"
    assert PPOConfig().learners(num_gpus_per_learner=1, local_gpu_idx=1).plain().kwargs["device"] == "cuda:1"
    assert torch.device("cuda:1").index == 1
