"""A machine of a cluster is lost while others train."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from polyak.compat.rllib_face import DQNConfig
from tests.compat.rllib_face.on_ray import PATIENCE
from tests.processes import assert_gone

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture
def cluster() -> Iterator[Any]:
    try:
        made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
    except Exception as error:  # it wants sockets, shared memory and more
        pytest.skip(f"Ray does not start here: {error}")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
def test_what_was_on_a_lost_node_is_made_anew_on_another(cluster: Any) -> None:
    """Two runners and a learner do not fit on the head beside two shards: some of them are on the node that is lost."""
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    made = DQNConfig().environment("CartPole-v1").learners(num_learners=1)
    made.env_runners(num_env_runners=3, num_envs_per_env_runner=2, rollout_fragment_length=4)
    made.training(replay_buffer_config={"num_replay_buffer_shards": 2, "capacity": 5000})
    made.training(num_steps_sampled_before_learning_starts=100, train_batch_size_per_learner=32)
    made.reporting(min_sample_timesteps_per_iteration=240).framework(torch_compile_learner=False)
    made.fault_tolerance(delay_between_env_runner_restarts_s=0).env_runners(sample_timeout_s=PATIENCE)
    with made.build() as algo:
        assert algo.train()["num_env_steps_sampled_lifetime"] == 240
        cluster.remove_node(node)
        cluster.add_node(num_cpus=2)
        until, trainings = time.monotonic() + 300, 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # they say who is gone
            while (
                restarts(algo) == 0 or algo.env_runner_group.num_healthy_env_runners < 3
            ) and time.monotonic() < until:
                assert algo.train()["num_env_steps_sampled_lifetime"] == (trainings + 1) * 240
                trainings += 1
        assert restarts(algo) > 0
        assert algo.env_runner_group.num_healthy_env_runners == 3
        processes = [*algo.env_runner_group.processes.values(), *algo.learner_group.processes]
        processes += algo.model.replay_buffer.processes
    assert_gone(processes)


def restarts(algo: Any) -> int:
    return int(
        algo.env_runner_group.num_restarts + algo.learner_group.restarts + algo.model.replay_buffer.workers.restarts
    )
