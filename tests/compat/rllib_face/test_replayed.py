"""What replay and evaluation on Ray are made of, without Ray."""

from __future__ import annotations

import pytest

from polyak.compat.rllib_face import DQNConfig
from polyak.compat.rllib_face.evaluation import EvaluationOrder
from polyak.compat.rllib_face.processes.evaluators import parts_of
from polyak.hyperparameters.declaration import HyperparameterError

# -- several shards ----------------------------------------------------------------------------------------------------


def test_there_must_be_an_environment_for_each_shard() -> None:
    made = DQNConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=2)
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=3"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": 3}).validate()
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=-1"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": -1}).validate()


# -- evaluation dealt out ----------------------------------------------------------------------------------------------


def test_evaluators_play_together_what_was_ordered() -> None:
    order = EvaluationOrder(7, in_steps=False, explores=False, seed=5)
    parts = parts_of(order, 3)
    assert [part and part.duration for part in parts] == [3, 2, 2]
    assert len({part.seed for part in parts if part}) == 3
    assert parts_of(order._replace(duration=2), 3)[2] is None
    assert parts_of(order, 1) == [order]
    steps = parts_of(order._replace(in_steps=True, duration=100), 3)
    assert [part and part.duration for part in steps] == [34, 34, 34]
