"""Settings as RLlib writes them out, and old names that still mean the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from polyak.algorithms.dqn import DQN
from polyak.compat.rllib_face import DQNConfig, PPOConfig
from polyak.compat.rllib_face.config.clipping import CLIPS
from polyak.compat.rllib_face.config.dqn import replay_options
from polyak.compat.rllib_face.models.values import SquaredErrors
from polyak.hyperparameters.declaration import HyperparameterError

WHOLE: dict[str, Any] = json.loads((Path(__file__).parent / "rllib_dumps.json").read_text())
DUMP: dict[str, Any] = {
    "algo_class": "ray.rllib.algorithms.ppo.ppo.PPO",
    "placement_strategy": "PACK",
    "num_gpus": 0,
    "env": "CartPole-v1",
    "observation_filter": "NoFilter",
    "count_steps_by": "env_steps",
    "policies": {"default_policy": [None, None, None, None]},
    "lr": 5e-5,
    "lr_schedule": None,
    "learner_config_dict": {},
    "_prior_exploration_config": {"type": "StochasticSampling"},
    "sgd_minibatch_size": -1,
    "train_batch_size": 4000,
    "train_batch_size_per_learner": None,
    "model": {"fcnet_hiddens": [64], "post_fcnet_hiddens": [], "vf_share_layers": False, "framestack": True, "dim": 84},
}


def test_a_dump_says_what_its_config_said() -> None:
    config = PPOConfig.from_dict(DUMP)
    assert config.model_config == {"fcnet_hiddens": [64], "vf_share_layers": False}
    assert config.total_train_batch_size == 4000
    assert config.algo_class is None
    assert not {"observation_filter", "sgd_minibatch_size", "sample_collector"} & config.to_dict().keys()
    assert (config.observation_filter, config.count_steps_by) == ("NoFilter", "env_steps")
    config.validate()


@pytest.mark.parametrize(
    ("changed", "fix"),
    [
        ({"observation_filter": "MeanStdFilter"}, "env_to_module_connector"),
        ({"sgd_minibatch_size": 64}, "minibatch_size"),
        ({"policies": {"a": None, "b": None}}, "one agent"),
        ({"model": {"use_attention": True}}, r"model\['use_attention'\].*rl_module"),
        ({"model": {"zero_mean": False}}, r"model\['zero_mean'\]=False.*rl_module"),
        ({"compress_observations": True}, "optimize_memory_usage"),
        ({"output": "data/"}, "polyak.experience.collect"),
        ({"fake_sampler": True}, "nothing here reads fake_sampler=True"),
        ({"enable_connectors": False}, "nothing here reads enable_connectors=False"),
        ({"lamda_": None}, "Did you mean 'lambda_'"),
        ({"prioritized_replay": False}, "replay_buffer_config"),
    ],
)
def test_what_asks_for_something_is_refused(changed: dict[str, Any], fix: str) -> None:
    with pytest.raises(TypeError, match=fix):
        PPOConfig.from_dict({**DUMP, **changed})


def test_old_schedules_are_schedules() -> None:
    config = PPOConfig()
    with pytest.warns(UserWarning, match="lr_schedule is an old name"):
        config.training(lr_schedule=[[0, 1e-3], [1000, 1e-4]])
    assert config.lr == [[0, 1e-3], [1000, 1e-4]]
    with pytest.warns(UserWarning, match="entropy_coeff_schedule"):
        assert config.training(entropy_coeff_schedule=[[0, 0.1], [10, 0.0]]).entropy_coeff[0] == [0, 0.1]


@pytest.mark.filterwarnings("ignore:.*is an old name")
def test_old_buffers_are_todays() -> None:
    old = {
        "_enable_replay_buffer_api": False,
        "type": "PrioritizedReplayBuffer",
        "capacity": 500,
        "prioritized_replay_alpha": 0.7,
        "prioritized_replay_beta": 0.2,
        "prioritized_replay_eps": 1e-6,
        "replay_sequence_length": 1,
    }
    today = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 500, "alpha": 0.7, "beta": 0.2}
    assert replay_options(old) == replay_options(today)
    with pytest.raises(HyperparameterError, match="max_seq_len"):
        replay_options({**old, "replay_sequence_length": 8})


def test_old_names_warn() -> None:
    with pytest.warns(UserWarning, match="Use 'EpisodeReplayBuffer'"):
        replay_options({"type": "MultiAgentReplayBuffer"})


def test_a_batch_size_alone_is_that_of_all_learners() -> None:
    config = PPOConfig().training(train_batch_size=64).learners(num_learners=2)
    assert config.total_train_batch_size == 64
    config.training(train_batch_size_per_learner=64)
    assert config.total_train_batch_size == 128
    with pytest.raises(HyperparameterError, match="train_batch_size=64"):
        config.environment("CartPole-v1").validate()


def test_missing_norms_of_gradients_are_said() -> None:
    with pytest.warns(UserWarning, match="norms of gradients"):
        PPOConfig().reporting(log_gradients=True).validate()


# -- gradients and errors ----------------------------------------------------------------------------------------------


def test_gradients_are_limited_each_by_itself() -> None:
    grads = [torch.tensor([3.0, 4.0]), torch.tensor([0.3, -0.4])]
    CLIPS["norm"]().limit(grads, 1.0)
    torch.testing.assert_close(grads[0], torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(grads[1], torch.tensor([0.3, -0.4]))
    CLIPS["value"]().limit(grads, torch.tensor(0.35))
    torch.testing.assert_close(grads[0], torch.tensor([0.35, 0.35]))
    torch.testing.assert_close(grads[1], torch.tensor([0.3, -0.35]))


@pytest.mark.parametrize("by", CLIPS)
@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_a_config_limits_them_so(by: str) -> None:
    """A step of plain descent is as long as the limit says: at most ``lr * grad_clip`` in each number."""
    config = PPOConfig().environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0)
    config.training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1, grad_clip=2**-10, grad_clip_by=by)
    with config.build_algo() as algo:
        algo.train()
        grads = [p.grad for p in algo.model.policy.parameters() if p.grad is not None]
    if by == "value":
        assert max(float(grad.abs().max()) for grad in grads) <= 2**-10
        assert sum(float((grad.abs() == 2**-10).sum()) for grad in grads) > 1
    else:
        norms = [float(grad.norm()) for grad in grads]
        assert max(norms) <= 2**-10 * (1 + 1e-5)
        assert sum(norm**2 for norm in norms) > 2 * 2**-20  # more than all together may have otherwise


def test_squared_errors_are_those_of_the_actions_taken() -> None:
    q, target = torch.tensor([[1.0, 5.0], [2.0, 0.0]]), torch.tensor([2.0, 2.0])

    class Batch:
        actions, weights = torch.tensor([[1], [0]]), torch.tensor([0.5, 1.0])

    found = SquaredErrors().objective(Batch, q, target)
    torch.testing.assert_close(found.loss, torch.tensor((0.5 * 9.0 + 0.0) / 2))
    torch.testing.assert_close(found.td_error, torch.tensor([3.0, 0.0]))


def test_squared_errors_are_asked_for_by_name() -> None:
    plain = DQNConfig().training(td_error_loss_fn="mse").plain()
    assert issubclass(plain.algorithm.learner_class, SquaredErrors)
    assert issubclass(plain.algorithm, DQN)
    with pytest.raises(HyperparameterError, match="td_error_loss_fn='mse'"):
        DQNConfig().training(td_error_loss_fn="mse", num_atoms=51).plain()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore:log_gradients")
def test_whole_dumps_of_rllib_build_what_they_say(name: str) -> None:
    """All that RLlib 2.40 writes out of its defaults, as a notebook prints it."""
    cls = {"DQN": DQNConfig, "PPO": PPOConfig}[name]
    config = cls.from_dict(WHOLE[name])
    config.validate()
    assert config.callbacks_class is None  # the dump names RLlib's own, whose methods do nothing
    changed = {key for key, value in config.to_dict().items() if value != getattr(cls(), key)}
    as_named = {"env", "evaluation_interval", "evaluation_duration", "log_gradients"}
    written = {"epsilon", "train_batch_size_per_learner", "num_cpus_per_learner", "torch_compile_learner"}
    written |= {"is_atari", "evaluation_config", "model_config"}
    assert changed <= as_named | written
