"""RLlib's names: each is served, or refused with the reason and what to do instead."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat import rllib_face as scale
from polyak.compat.rllib_face import MultiRLModule, MultiRLModuleSpec, PPOConfig, PPOTorchRLModule, RLModuleSpec
from polyak.compat.rllib_face.table import REFUSED
from polyak.hyperparameters.declaration import HyperparameterError

OBJECTS: dict[str, str] = {
    "AlgorithmConfig": "environment env_runners learners training rl_module evaluation callbacks reporting debugging "
    "fault_tolerance framework api_stack offline_data copy to_dict from_dict update_from_dict get validate freeze "
    "overrides build build_algo is_frozen total_train_batch_size get_rollout_fragment_length checkpointing resources "
    "multi_agent rollouts exploration",
    "Algorithm": "train evaluate training_step stop get_module get_weights set_weights save_to_path restore_from_path "
    "from_checkpoint get_state set_state iteration config env_runner env_runner_group eval_env_runner_group "
    "learner_group metrics add_module remove_module compute_single_action predict get_default_config",
    "TorchRLModule": "setup _forward _forward_inference _forward_exploration _forward_train forward_inference "
    "forward_exploration forward_train forward get_initial_state is_stateful get_inference_action_dist_cls "
    "get_exploration_action_dist_cls get_train_action_dist_cls get_state set_state unwrapped as_multi_rl_module "
    "save_to_path from_checkpoint compile framework",
    "RLModuleSpec": "module_class observation_space action_space inference_only learner_only model_config "
    "catalog_class load_state_path build from_module",
    "MultiRLModule": "add_module remove_module foreach_module forward_inference forward_exploration forward_train "
    "get_state set_state save_to_path from_checkpoint unwrapped keys values items get",
    "MultiRLModuleSpec": "rl_module_specs load_state_path build",
    "ValueFunctionAPI": "compute_values",
    "InferenceOnlyAPI": "get_non_inference_attributes",
    "TargetNetworkAPI": "make_target_networks get_target_network_pairs forward_target",
    "QNetAPI": "compute_q_values",
    "SelfSupervisedLossAPI": "compute_self_supervised_loss",
    "Catalog": "_determine_components_hook build_encoder get_action_dist_cls _get_encoder_config get_tokenizer_config "
    "_get_dist_cls_from_action_space",
    "PPOCatalog": "build_actor_critic_encoder build_pi_head build_vf_head pi_head_config vf_head_config",
    "DQNCatalog": "build_af_head build_vf_head",
    "RLlibCallback": "on_algorithm_init on_train_result on_evaluate_start on_evaluate_end on_checkpoint_loaded "
    "on_environment_created on_episode_end",
}
"""What programs ask of objects: of the config and of the algorithm of an instance, of others of the class."""


@pytest.fixture(scope="module")
def algorithm() -> Any:
    made = PPOConfig().environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [8]})
    with made.build() as algo:
        yield algo


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_have_what_programs_ask_of_them_or_say_what_to_do(name: str, algorithm: Any) -> None:
    instances = {"AlgorithmConfig": PPOConfig(), "Algorithm": algorithm}
    found = instances.get(name, getattr(scale, name))
    fields = getattr(found, "__dataclass_fields__", {})
    for attribute in OBJECTS[name].split():
        if attribute in fields:
            continue
        if not hasattr(found, attribute):
            with pytest.raises(AttributeError, match=r"\. Use "):
                getattr(found, attribute)


@pytest.mark.parametrize("path", REFUSED)
def test_names_that_are_not_here_say_why(path: str) -> None:
    module = import_module(f"polyak.compat.rllib.{path}")
    for name, why in REFUSED[path].items():
        with pytest.raises(ImportError, match=f"cannot import name '{name}'") as caught:
            getattr(module, name)
        assert why in str(caught.value)
        assert name not in dir(module)


def module(width: int = 8) -> Any:
    box, two = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
    options = {"fcnet_hiddens": [width]}
    return RLModuleSpec(PPOTorchRLModule, box, two, model_config=options).build()


def test_a_module_compiles_as_the_config_says() -> None:
    from polyak.compat.rllib.core.rl_module.torch.torch_compile_config import TorchCompileConfig

    own, batch, graphs = module(), {"obs": torch.rand(5, 3)}, []

    def backend(graph: Any, inputs: Any, options: Any = None) -> Any:
        graphs.append(options)
        return graph.forward

    expected = own.forward_inference(batch)["action_dist_inputs"]
    made = own.compile(TorchCompileConfig(backend, kwargs={"options": {"seen": True}, "fullgraph": True}))
    assert made is own
    assert own.forward_inference(batch)["action_dist_inputs"].equal(expected)
    assert graphs == [{"seen": True}]
    with pytest.raises(RuntimeError, match="mode"):
        module().compile(TorchCompileConfig("inductor", torch_dynamo_mode="unheard of"))


def test_the_spec_of_a_config_says_what_is_built() -> None:
    spaces_of = {"default_policy": (spaces.Box(-1, 1, (3,)), spaces.Discrete(2))}
    spec = PPOConfig().get_multi_rl_module_spec(spaces=spaces_of, inference_only=True)
    assert spec.build()["default_policy"].vf is None
    assert PPOConfig().get_rl_module_spec(spaces=spaces_of).build().vf is not None
    with pytest.raises(HyperparameterError, match="policy_dict"):
        PPOConfig().get_multi_rl_module_spec(policy_dict={"a": None})


def test_modules_under_names(tmp_path: Path) -> None:
    both = MultiRLModule({"a": module(), "b": module(4)})
    batch = {"b": {"obs": torch.rand(5, 3)}}
    expected = both["b"].forward_inference(batch["b"])["action_dist_inputs"]
    assert both.forward_inference(batch)["b"]["action_dist_inputs"].equal(expected)
    again = MultiRLModule.from_checkpoint(both.save_to_path(tmp_path / "both"))
    assert list(again) == ["a", "b"]
    assert again.forward_inference(batch)["b"]["action_dist_inputs"].equal(expected)
    assert both.foreach_module(lambda name, one: (name, type(one).__name__))[0] == ("a", "DefaultPPOTorchRLModule")
    state = both.get_state()
    with torch.no_grad():
        next(both["b"].parameters()).add_(1)
    both.set_state({"b": state["b"]})
    assert both.forward_inference(batch)["b"]["action_dist_inputs"].equal(expected)
    both.remove_module("a")
    assert list(both) == ["b"]
    with pytest.raises(KeyError, match="no module 'a', only"):
        both.set_state({"a": state["a"]})
    with pytest.raises(HyperparameterError, match="override"):
        both.add_module("b", module())
    with pytest.raises(HyperparameterError, match="slashes"):
        both.add_module("../b", module())
    with pytest.raises(FileNotFoundError, match="module.json"):
        MultiRLModule.from_checkpoint(tmp_path)
    assert list(module().as_multi_rl_module()) == ["default_policy"]


def test_a_spec_of_modules_is_that_of_the_one_agent(tmp_path: Path) -> None:
    spec = MultiRLModuleSpec({"default_policy": RLModuleSpec(model_config={"fcnet_hiddens": [8]})})
    made = PPOConfig().environment("CartPole-v1").rl_module(rl_module_spec=spec)
    with made.build() as algo:
        own = algo.get_module()
        saved = own.as_multi_rl_module().save_to_path(tmp_path / "saved")
        expected = own.get_state()
    spec.load_state_path = saved
    with made.rl_module(rl_module_spec=spec).build() as algo:
        for name, value in algo.get_module().get_state().items():
            np.testing.assert_array_equal(value, expected[name])
    two = MultiRLModuleSpec({"default_policy": RLModuleSpec(), "other": RLModuleSpec()})
    with pytest.raises(HyperparameterError, match="one agent"):
        PPOConfig().rl_module(rl_module_spec=two)
    with pytest.raises(HyperparameterError, match="rl_module_specs"):
        MultiRLModuleSpec({"default_policy": "no spec"}).build()  # type: ignore[dict-item]
    specs = {"a": RLModuleSpec.from_module(module()), "b": RLModuleSpec.from_module(module(4))}
    assert list(MultiRLModuleSpec(specs).build()) == ["a", "b"]
    assert MultiRLModuleSpec(specs).build("b").model_config == {"fcnet_hiddens": [4]}


def test_modules_are_built_from_specs() -> None:
    spec = RLModuleSpec(
        module_class=PPOTorchRLModule,
        observation_space=spaces.Box(-1.0, 1.0, (2,)),
        action_space=spaces.Discrete(2),
        model_config={"fcnet_hiddens": [4]},
    )
    modules = MultiRLModule(rl_module_specs={"a": spec, "b": spec})
    assert sorted(modules) == ["a", "b"]
    assert modules["a"] is not modules["b"]
    assert modules["a"].vf is not None
    acting = MultiRLModule(rl_module_specs={"a": spec}, inference_only=True)["a"]
    assert acting.vf is None
    with pytest.raises(RuntimeError, match="inference_only"):
        acting.forward_train({"obs": torch.rand(5, 2)})
    assert not spec.inference_only
    with pytest.raises(HyperparameterError, match="rl_module_specs"):
        MultiRLModule(rl_module_specs={"a": modules["a"]})  # type: ignore[dict-item]
