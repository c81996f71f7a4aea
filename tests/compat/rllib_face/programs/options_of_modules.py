"""DefaultModelConfig: given whole, read by modules and catalogs, and kept in a module's folder."""

import dataclasses
import tempfile

from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

CALLS = Calls()
SEEN = {}


class Reads(PPOCatalog):
    def _determine_components_hook(self):
        CALLS.note("_determine_components_hook")
        SEEN["catalog"] = {
            name: self._model_config_dict[name] for name in ("fcnet_hiddens", "fcnet_activation", "vf_share_layers")
        }
        super()._determine_components_hook()


class Looks(DefaultPPOTorchRLModule):
    def setup(self):
        super().setup()
        CALLS.note("setup")
        SEEN["module"] = [self.model_config["fcnet_hiddens"], self.model_config["fcnet_activation"]]
        SEEN["by get"] = self.model_config.get("head_fcnet_hiddens"), self.model_config.get("nothing", 3)


def outcome():
    options = DefaultModelConfig(fcnet_hiddens=[12, 7], fcnet_activation="relu", head_fcnet_hiddens=[5])
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Looks, catalog_class=Reads), model_config=options)
    config.training(train_batch_size_per_learner=40, minibatch_size=40, num_epochs=1)
    said = {}
    try:
        algo = config.build_algo()
    except Exception as error:
        return {"equal": {"refused": type(error).__name__}, "called": CALLS}
    module = algo.get_module()
    shapes = {
        name: list(value.shape) for name, value in module.state_dict().items() if "encoder" in name or "pi" in name
    }
    with tempfile.TemporaryDirectory() as folder:
        module.save_to_path(folder)
        other = RLModule.from_checkpoint(folder)
    kept = other.model_config
    kept = dataclasses.asdict(kept) if dataclasses.is_dataclass(kept) else dict(kept)
    said["kept"] = {name: kept[name] for name in ("fcnet_hiddens", "fcnet_activation", "head_fcnet_hiddens")}
    said["same"] = bool(all((module.get_state()[name] == value).all() for name, value in other.get_state().items()))
    algo.stop()
    return {"equal": {**SEEN, **said, "shapes": shapes}, "called": CALLS}
