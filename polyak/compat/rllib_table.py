"""Names of RLlib 2.60, some of earlier versions among them, and where polyak has them; written as in
:mod:`polyak.compat.table`.
"""

_SCALE = "polyak.scale"
_CONFIGS = (
    f"{_SCALE}: CNNEncoderConfig MLPEncoderConfig RecurrentEncoderConfig ActorCriticEncoderConfig MLPHeadConfig "
    "FreeLogStdMLPHeadConfig ModelConfig"
)
_APIS = f"{_SCALE}: InferenceOnlyAPI QNetAPI TargetNetworkAPI ValueFunctionAPI"
_SPEC = f"{_SCALE}: RLModule RLModuleSpec"
_PPO_MODULE = f"{_SCALE}: PPOTorchRLModule DefaultPPOTorchRLModule"
_DQN_MODULE = f"{_SCALE}: DQNRainbowTorchRLModule DefaultDQNTorchRLModule"
_CALLBACKS = f"{_SCALE}: RLlibCallback DefaultCallbacks"

RLLIB: dict[str, tuple[str, ...]] = {
    "": (),
    "algorithms": (
        f"{_SCALE}: Algorithm AlgorithmConfig PPO PPOConfig DQN DQNConfig SAC SACConfig IMPALA IMPALAConfig APPO "
        "APPOConfig",
    ),
    "algorithms.algorithm": (f"{_SCALE}: Algorithm",),
    "algorithms.algorithm_config": (f"{_SCALE}: AlgorithmConfig",),
    "algorithms.ppo": (f"{_SCALE}: PPO PPOConfig",),
    "algorithms.ppo.ppo": (f"{_SCALE}: PPO PPOConfig",),
    "algorithms.ppo.ppo_catalog": (f"{_SCALE}: PPOCatalog",),
    "algorithms.ppo.ppo_rl_module": (f"{_SCALE}: PPORLModule",),
    "algorithms.ppo.default_ppo_rl_module": (f"{_SCALE}: DefaultPPORLModule=PPORLModule",),
    "algorithms.ppo.torch": (_PPO_MODULE,),
    "algorithms.ppo.torch.ppo_torch_rl_module": (_PPO_MODULE,),
    "algorithms.ppo.torch.default_ppo_torch_rl_module": (_PPO_MODULE,),
    "algorithms.dqn": (f"{_SCALE}: DQN DQNConfig",),
    "algorithms.dqn.dqn": (f"{_SCALE}: DQN DQNConfig",),
    "algorithms.dqn.dqn_catalog": (f"{_SCALE}: DQNCatalog",),
    "algorithms.dqn.dqn_rainbow_catalog": (f"{_SCALE}: DQNRainbowCatalog",),
    "algorithms.dqn.torch": (_DQN_MODULE,),
    "algorithms.dqn.torch.dqn_rainbow_torch_rl_module": (_DQN_MODULE,),
    "algorithms.dqn.torch.default_dqn_torch_rl_module": (_DQN_MODULE,),
    "algorithms.sac": (f"{_SCALE}: SAC SACConfig",),
    "algorithms.sac.sac": (f"{_SCALE}: SAC SACConfig",),
    "algorithms.impala": (f"{_SCALE}: IMPALA IMPALAConfig",),
    "algorithms.impala.impala": (f"{_SCALE}: IMPALA IMPALAConfig",),
    "algorithms.appo": (f"{_SCALE}: APPO APPOConfig",),
    "algorithms.appo.appo": (f"{_SCALE}: APPO APPOConfig",),
    "callbacks": (_CALLBACKS,),
    "callbacks.callbacks": (_CALLBACKS,),
    "connectors": (),
    "connectors.env_to_module": (f"{_SCALE}: MeanStdFilter",),
    "connectors.env_to_module.mean_std_filter": (f"{_SCALE}: MeanStdFilter",),
    "core": (f"{_SCALE}: Columns DEFAULT_MODULE_ID",),
    "core.columns": (f"{_SCALE}: Columns",),
    "core.models": (),
    "core.models.base": (f"{_SCALE}: ACTOR CRITIC ENCODER_OUT",),
    "core.models.catalog": (f"{_SCALE}: Catalog",),
    "core.models.configs": (_CONFIGS,),
    "core.models.torch": (),
    "core.models.torch.encoder": (f"{_SCALE}: Encoder TorchModel",),
    "core.models.torch.base": (f"{_SCALE}: TorchModel",),
    "core.rl_module": (_SPEC, f"{_SCALE}: DefaultModelConfig"),
    "core.rl_module.rl_module": (_SPEC,),
    "core.rl_module.default_model_config": (f"{_SCALE}: DefaultModelConfig",),
    "core.rl_module.apis": (_APIS,),
    "core.rl_module.torch": (f"{_SCALE}: TorchRLModule",),
    "core.rl_module.torch.torch_rl_module": (f"{_SCALE}: TorchRLModule",),
    "env": (),
    "env.env_context": (f"{_SCALE}: EnvContext",),
    "tune": (f"{_SCALE}: register_env get_trainable_cls",),
    "tune.registry": (f"{_SCALE}: register_env get_trainable_cls",),
}
"""Module path below ``ray.rllib``; ``tune`` stands for ``ray.tune``."""

TUNE: dict[str, tuple[str, ...]] = {
    path.removeprefix("tune").removeprefix("."): lines for path, lines in RLLIB.items() if path.startswith("tune")
}
"""Module path below ``ray.tune``, of which there is no more than this."""
