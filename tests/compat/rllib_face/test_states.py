"""What an algorithm has learned and counted, taken out of one and put into another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from polyak.compat.rllib_face import Algorithm, MeanStdFilter
from polyak.compat.rllib_face.groups import synchronous_parallel_sample
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat.rllib_face.test_algorithm import SMALL, dqn, equal, ppo, weights
from tests.pairs import one_of_each

MODULE = "learner_group/learner/rl_module"


def moved(algo: Algorithm) -> dict[str, Any]:
    """All that learning has moved."""
    tensors = {name: tensor.numpy(force=True) for name, tensor in algo.model.learner.networks().items()}
    moments = {}
    for name, optimizer in algo.model.learner.optimizers.items():
        for index, part in optimizer.state_dict()["state"].items():
            moments |= {f"{name}/{index}/{key}": np.asarray(value) for key, value in part.items()}
    return {**tensors, **moments}


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
@pytest.mark.parametrize("name", one_of_each(SMALL, "PPO", "Rainbow", "SAC"))
def test_a_state_put_into_another_algorithm_is_all_that_was_learned(name: str) -> None:
    with SMALL[name]().build() as first, SMALL[name]().debugging(seed=4).build() as second:
        first.train()
        state = first.get_state()
        first.train()  # a state is a copy
        second.set_state(state)
        assert second.iteration == 1
        assert second.model.num_timesteps == state["env_runner"]["num_env_steps_sampled_lifetime"] > 0
        before = moved(second)
        assert not equal(before, moved(first))
        first.set_state(state)
        assert equal(moved(first), before)
        assert first.model.learner.steps == second.model.learner.steps
        after = second.train()
    assert after["training_iteration"] == 2
    assert after["num_env_steps_sampled_lifetime"] > state["env_runner"]["num_env_steps_sampled_lifetime"]
    kept = state["metrics_logger"]["num_episodes_lifetime"]
    assert after["env_runners"]["num_episodes_lifetime"] == kept + after["env_runners"]["num_episodes"]


def test_components_are_chosen_by_their_names() -> None:
    with ppo().env_runners(env_to_module_connector=MeanStdFilter()).build() as algo:
        algo.train()
        whole = algo.get_state()
        assert sorted(whole) == [
            "env_runner",
            "eval_env_runner",
            "learner_group",
            "metrics_logger",
            "training_iteration",
        ]
        only = algo.get_state(components=MODULE)
        assert list(only["learner_group"]["learner"]) == ["rl_module"]
        assert "env_runner" not in only
        without = algo.get_state(
            not_components=["learner_group/learner/optimizer", "env_runner/env_to_module_connector"]
        )
        assert list(without["learner_group"]["learner"]) == ["rl_module"]
        assert "env_to_module_connector" not in without["env_runner"]
        assert whole["env_runner"]["env_to_module_connector"]["obs_rms"]["count"] > 1
        assert equal(only["learner_group"]["learner"]["rl_module"]["default_policy"], weights(algo))
        acting = algo.learner_group.get_state("learner/rl_module", inference_only=True)
        assert list(acting["learner"]) == ["rl_module"]
        assert not any(name.startswith("vf.") for name in acting["learner"]["rl_module"]["default_policy"])
        with pytest.raises(HyperparameterError, match="components='learner'"):
            algo.get_state("learner")
        with pytest.raises(HyperparameterError, match="state="):
            algo.set_state({"policy": {}})


@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_weights_are_those_of_the_module(name: str) -> None:
    with SMALL[name]().build() as algo:
        module = algo.get_module()
        module.set_state(weights(algo))
        assert equal(module.get_state(), weights(algo))
        with torch.no_grad():
            next(iter(module.parameters())).add_(1)
        assert not equal(module.get_state(), moved(algo))
    with pytest.raises(ValueError, match="only 'default_policy'"):
        algo.get_weights(["other"])


def test_weights_of_dqn_have_the_lagging_networks() -> None:
    with dqn().build() as algo, dqn().debugging(seed=4).build() as other:
        algo.train()
        lagging = {name for name in weights(algo) if name.startswith("_target_")}
        assert {name.split(".")[0] for name in lagging} == {"_target_encoder", "_target_af", "_target_vf"}
        other.set_weights(algo.get_weights())
        ours, theirs = algo.model.policy.q_net_target.state_dict(), other.model.policy.q_net_target.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        acting = algo.get_module().get_state(inference_only=True)
        assert not lagging & acting.keys()


def test_who_evaluates_elsewhere_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with ppo().build() as algo:
        with monkeypatch.context() as other:
            other.setattr(algo, "_evaluators", None)
            with pytest.raises(AttributeError, match="eval_env_runner_group: evaluation runs in other processes"):
                _ = algo.eval_env_runner
        assert algo.config.evaluation_settings().copy().in_evaluation
        assert not algo.config.copy().in_evaluation


def test_runners_of_this_process_are_reached_through_their_groups() -> None:
    with ppo().build() as algo:
        assert algo.env_runner_group.foreach_env_runner(lambda runner: runner.num_envs) == [1]
        assert not algo.env_runner.config.in_evaluation
        assert algo.env_runner.module is algo.get_module()
        assert algo.env_runner_group.foreach_env_runner(id, local_env_runner=False) == []
        assert algo.env_runner_group.foreach_env_runner("get_metrics") == [{}]
        with pytest.raises(HyperparameterError, match="return_obj_refs"):
            algo.env_runner_group.foreach_env_runner(id, return_obj_refs=True)
        assert algo.env_runner_group.num_remote_env_runners() == 0
        group = algo.eval_env_runner_group
        assert group.foreach_env_runner(lambda runner: runner.config.in_evaluation) == [True]
        assert group.num_remote_env_runners() == 0
        assert sum(map(len, algo.env_runner.sample())) == algo.model.n_steps
        assert sum(map(len, algo.env_runner.sample(num_timesteps=7))) == 7
        (of_one,) = synchronous_parallel_sample(worker_set=algo.env_runner_group, max_env_steps=5, concat=False)
        assert sum(map(len, of_one)) == 5
        assert [one.is_done for one in algo.env_runner.sample(num_episodes=2)] == [True, True]
        before = moved(algo)
        (episode,) = algo.eval_env_runner.sample()
        assert episode.is_done
        assert len(episode.get_rewards()) == len(episode)
        assert equal(moved(algo), before)
        with pytest.raises(HyperparameterError, match="not both"):
            algo.eval_env_runner.sample(num_timesteps=3, num_episodes=3)
