"""A module is trained and written to a folder, and another algorithm begins with it."""

import tempfile
from pathlib import Path

import numpy as np
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from shared import arguments, ppo, run

SAID = {}
OPTIONS = DefaultModelConfig(fcnet_hiddens=[16], vf_share_layers=True)


def config_of(spec=None):
    config = ppo("CartPole-v1", 256, 128).env_runners(num_env_runners=0)
    return config.rl_module(rl_module_spec=spec or RLModuleSpec(model_config=OPTIONS))


def weights_of(module):
    return {name: np.asarray(value) for name, value in module.get_state().items()}


parser = arguments(default_iters=50, default_timesteps=200000)

if __name__ == "__main__":
    args = parser.parse_args()
    algo = config_of().build()
    algo.train()
    folder = Path(algo.save_to_path(tempfile.mkdtemp()))
    trained = weights_of(algo.get_module())
    algo.stop()

    saved = folder / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE
    again = weights_of(RLModule.from_checkpoint(saved / DEFAULT_MODULE_ID))
    SAID["same from files"] = all(np.allclose(again[name], value) for name, value in trained.items())

    config = config_of(RLModuleSpec(model_config=OPTIONS, load_state_path=saved / DEFAULT_MODULE_ID))
    other = config.build()
    begun = weights_of(other.get_module())
    SAID["same at first"] = all(np.allclose(begun[name], value) for name, value in trained.items())
    other.stop()
    results = run(config, args)
