"""Modules by themselves in checkpoints, configs of models in files, and results by RLlib's further names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from polyak.compat.rllib_face import (
    Algorithm,
    DefaultModelConfig,
    DefaultPPOTorchRLModule,
    PPOConfig,
    RLModule,
    RLModuleSpec,
)
from polyak.compat.rllib_face.checkpoints import MODULES


def small(**module: Any) -> Any:
    made = PPOConfig().environment("CartPole-v1").debugging(seed=0)
    made.training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1, entropy_coeff=[[0, 0.5], [64, 0.1]])
    return made.rl_module(**module)


def test_a_module_is_read_without_its_algorithm(tmp_path: Path) -> None:
    with small(model_config={"fcnet_hiddens": [8]}).build_algo() as algo:
        algo.save_to_path(tmp_path)
        module = RLModule.from_checkpoint(tmp_path / MODULES)["default_policy"]
        alone = RLModule.from_checkpoint(tmp_path / MODULES / "default_policy")
        batch = {"obs": torch.ones(2, 4)}
        expected = algo.get_module().forward_inference(batch)["action_dist_inputs"]
    for one in (module, alone):
        torch.testing.assert_close(one.forward_inference(batch)["action_dist_inputs"], expected)


def test_a_class_that_no_file_can_name_is_in_the_checkpoint_alone(tmp_path: Path) -> None:
    class Local(DefaultPPOTorchRLModule):
        pass

    spec = RLModuleSpec(module_class=Local)
    with small(model_config={"fcnet_hiddens": [8]}, rl_module_spec=spec).build_algo() as algo:
        algo.save_to_path(tmp_path)
        algo.restore_from_path(tmp_path)
    assert not list((tmp_path / MODULES).glob("*"))


def test_a_config_of_models_is_held_by_files(tmp_path: Path) -> None:
    """All its fields: an algorithm's own defaults do not take the place of those that it leaves as they are."""
    with small(model_config=DefaultModelConfig(fcnet_hiddens=[8])).build_algo() as algo:
        algo.save_to_path(tmp_path)
        weights = algo.get_weights()["default_policy"]
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert again.config.model_config["vf_share_layers"] is True
        for name, value in again.get_weights()["default_policy"].items():
            assert (value == weights[name]).all()


def test_results_have_the_peers_further_names(tmp_path: Path) -> None:
    with small(model_config={"fcnet_hiddens": [8]}).build_algo() as algo:
        first, second = algo.train(), algo.train()
        algo.save_to_path(tmp_path)
        assert algo.training_iteration == 2
    assert second["env_runners"]["num_agent_steps_sampled_lifetime"] == {"default_agent": 64}
    assert second["env_runners"]["num_env_steps_sampled_lifetime_throughput"]["throughput_since_last_restore"] > 0
    found = [one["learners"]["default_policy"]["curr_entropy_coeff"] for one in (first, second)]
    assert found == pytest.approx([0.3, 0.1])
    with Algorithm.from_checkpoint(tmp_path) as again:
        third = again.train()
    assert (third["iterations_since_restore"], third["training_iteration"]) == (1, 3)
    assert third["time_since_restore"] < third["time_total_s"]
