"""Modules that specs build: their states, columns, parts and options; and configs that name them."""

import dataclasses
import tempfile

import gymnasium as gym
import numpy as np
import torch
from games import CALLS, SEEN, count, learns, ppo, refusal, shapes, trained
from ray.rllib.algorithms.bc.bc_catalog import BCCatalog
from ray.rllib.algorithms.bc.torch.default_bc_torch_rl_module import DefaultBCTorchRLModule
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

VECTOR = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)


def built(kind, space, model, **options):
    """The module of a spec."""
    spaces = {"observation_space": space, "action_space": gym.spaces.Discrete(3)}
    return RLModuleSpec(module_class=kind, model_config=model, **spaces, **options).build()


class HasValues(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    def setup(self):
        count("setup")
        self.body, self.pi, self.vf = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 1)

    def get_non_inference_attributes(self):
        count("get_non_inference_attributes")
        return ["vf"]

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(torch.tanh(self.body(batch[Columns.OBS])))}

    def compute_values(self, batch, embeddings=None):
        return self.vf(torch.tanh(self.body(batch[Columns.OBS]))).squeeze(-1)


def superset_of_state():
    """One built for acting alone takes the state of one that learns, of which it has a part."""
    options = {"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], "vf_share_layers": False}
    found = {}
    for kind, model in ((HasValues, {}), (DefaultPPOTorchRLModule, options)):
        learns, acts = (built(kind, VECTOR, model, inference_only=alone) for alone in (False, True))
        whole, part = learns.get_state(), learns.get_state(inference_only=True)
        acts.set_state(whole)
        batch = {Columns.OBS: torch.linspace(-1, 1, 8).reshape(2, 4)}
        same = [one.forward_inference(batch)[Columns.ACTION_DIST_INPUTS] for one in (learns, acts)]
        found["Small" if kind is HasValues else kind.__name__] = {
            "whole": sorted(whole),
            "part": sorted(part),
            "acts by": sorted(acts.get_state()),
            "same": bool(torch.equal(*same)),
            "forward_train": refusal(lambda acts=acts, batch=batch: acts.forward_train(batch)),
        }
        acts.set_state(part)
    return {**found, "order of calls": list(CALLS)}


class Tells(TorchRLModule):
    def setup(self):
        count("setup")
        self.net = nn.Linear(4, 3)

    def input_specs_train(self):
        return [*(super().input_specs_train() or [Columns.OBS]), Columns.ACTIONS]

    def output_specs_exploration(self):
        return [Columns.ACTIONS]

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.net(batch[Columns.OBS])}


def what_goes_in_and_out():
    """The columns that modules read and return, default ones and one with specs of its own."""
    found = {}
    for kind, catalog, more in (
        (Tells, None, {}),
        (DefaultPPOTorchRLModule, PPOCatalog, {}),
        (DefaultPPOTorchRLModule, PPOCatalog, {"use_lstm": True, "lstm_cell_size": 5}),
        (DefaultDQNTorchRLModule, DQNCatalog, {"num_atoms": 1, "double_q": True, "epsilon": 0.1}),
    ):
        model = {"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], **more}
        module = built(kind, VECTOR, model, catalog_class=catalog)
        found[f"{kind.__name__} {sorted(more)}"] = {
            f"{way}_{when}": sorted(map(str, getattr(module, f"{way}_specs_{when}")() or []))
            for way in ("input", "output")
            for when in ("inference", "exploration", "train")
        }
    return {**found, "order of calls": list(CALLS)}


def names_of_parts():
    """Parts of default modules by the names that programs reach them by."""
    found = {}
    pixels = gym.spaces.Box(0.0, 1.0, (10, 10, 3), np.float32)
    dqn = {"num_atoms": 1, "dueling": True, "double_q": True, "epsilon": 0.1}
    for name, kind, catalog, space, options in (
        ("apart", DefaultPPOTorchRLModule, PPOCatalog, VECTOR, {"vf_share_layers": False}),
        ("shared", DefaultPPOTorchRLModule, PPOCatalog, VECTOR, {"vf_share_layers": True}),
        ("pixels", DefaultPPOTorchRLModule, PPOCatalog, pixels, {"vf_share_layers": True}),
        ("memory", DefaultPPOTorchRLModule, PPOCatalog, VECTOR, {"vf_share_layers": True, "use_lstm": True}),
        ("values", DefaultDQNTorchRLModule, DQNCatalog, VECTOR, dqn),
        ("cloned", DefaultBCTorchRLModule, BCCatalog, VECTOR, {}),
    ):
        model = {"fcnet_hiddens": [8, 6], "head_fcnet_hiddens": [5], "lstm_cell_size": 7, **options}
        module = built(kind, space, model, catalog_class=catalog)
        if kind is DefaultDQNTorchRLModule:
            module.make_target_networks()
            pairs = module.get_target_network_pairs()
            found["pairs"] = [
                [own is getattr(module, part), copy is getattr(module, f"_target_{part}")]
                for part, (own, copy) in zip(("encoder", "af", "vf"), pairs, strict=True)
            ]
        found[name] = {
            "children": sorted(child for child, _ in module.named_children()),
            "state": {key: list(value.shape) for key, value in module.get_state().items()},
            "learned": sorted(key for key, value in module.named_parameters() if value.requires_grad),
        }
    return found


class Reads(PPOCatalog):
    def _determine_components_hook(self):
        count("_determine_components_hook")
        SEEN["catalog"] = {
            name: self._model_config_dict[name] for name in ("fcnet_hiddens", "fcnet_activation", "vf_share_layers")
        }
        super()._determine_components_hook()


class Looks(DefaultPPOTorchRLModule):
    def setup(self):
        super().setup()
        count("setup")
        SEEN["module"] = [self.model_config["fcnet_hiddens"], self.model_config["fcnet_activation"]]
        SEEN["by get"] = self.model_config.get("head_fcnet_hiddens"), self.model_config.get("nothing", 3)


def options_of_modules():
    """DefaultModelConfig: given whole, read by modules and catalogs, and kept in a module's folder."""
    options = DefaultModelConfig(fcnet_hiddens=[12, 7], fcnet_activation="relu", head_fcnet_hiddens=[5])
    spec = RLModuleSpec(module_class=Looks, catalog_class=Reads)
    algo = ppo(rows=40, minibatch=40, epochs=1, spec=spec, model=options).build_algo()
    module = algo.get_module()
    with tempfile.TemporaryDirectory() as folder:
        module.save_to_path(folder)
        other = RLModule.from_checkpoint(folder)
    kept = other.model_config
    kept = dataclasses.asdict(kept) if dataclasses.is_dataclass(kept) else dict(kept)
    found = {
        **SEEN,
        "kept": {name: kept[name] for name in ("fcnet_hiddens", "fcnet_activation", "head_fcnet_hiddens")},
        "same": bool(all((module.get_state()[name] == value).all() for name, value in other.get_state().items())),
        "shapes": {name: shape for name, shape in shapes(module).items() if "encoder" in name or "pi" in name},
        "order of calls": list(CALLS),
    }
    algo.stop()
    return found


class NarrowCatalog(PPOCatalog):
    def build_vf_head(self, framework):
        count("build_vf_head")
        return nn.Sequential(nn.Linear(self.latent_dims[0], 3), nn.Tanh(), nn.Linear(3, 1))


class NamedModule(PPOTorchRLModule):
    def setup(self):
        count("setup")
        super().setup()
        self.extra = nn.Parameter(torch.zeros(7))


class NarrowPPOConfig(PPOConfig):
    def get_default_rl_module_spec(self):
        count("get_default_rl_module_spec")
        return RLModuleSpec(
            module_class=NamedModule, catalog_class=NarrowCatalog, model_config={"fcnet_hiddens": [6, 5]}
        )

    @property
    def _model_config_auto_includes(self):
        count("_model_config_auto_includes")
        return super()._model_config_auto_includes | {"fcnet_activation": "relu"}


def default_spec():
    """A config that says itself which module and catalog it trains."""
    config = NarrowPPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    with trained(config) as (algo, _):
        module = learns(algo)
        return {
            "class": type(module).__name__,
            "catalog": type(module.catalog).__name__,
            "value head": [type(layer).__name__ for layer in module.vf],
            "extra": list(module.extra.shape),
            "latent_dims": list(module.catalog.latent_dims),
            "activation": module.model_config["fcnet_activation"],
            "vf_share_layers": module.model_config["vf_share_layers"],
        }
