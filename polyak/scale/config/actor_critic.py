"""What configs share whose policy has a stochastic actor and a value function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyak.scale.config.base import AlgorithmConfig
from polyak.scale.config.modules import Networks
from polyak.scale.models.actor_critics import ModulePolicy, RecurrentModulePolicy, WholeModulePolicy
from polyak.scale.models.catalog import PPOCatalog
from polyak.scale.models.default_modules import DefaultPPOTorchRLModule


@dataclass(init=False, repr=False, eq=False)
class ActorCriticConfig(AlgorithmConfig):
    """From rollouts of ``get_rollout_fragment_length()`` steps and PPO's module to a policy."""

    def get_rollout_fragment_length(self) -> int:
        """Steps of each environment in a rollout: where a length is given, as many times that as make the batch."""
        steps = -(-self.total_train_batch_size // (self.num_envs_per_env_runner * max(1, self.num_env_runners)))
        if self.rollout_fragment_length == "auto":
            return steps
        return -(-steps // self.rollout_fragment_length) * self.rollout_fragment_length

    def _policy(self, turned: bool) -> tuple[Any, dict[str, Any]]:
        networks = Networks(self, DefaultPPOTorchRLModule, PPOCatalog)
        kwargs = networks.policy_kwargs(turned)
        if networks.remembers:
            return RecurrentModulePolicy, {**kwargs, "memory": "lstm"}
        return (ModulePolicy if self._comes_apart(networks) else WholeModulePolicy), kwargs

    def _comes_apart(self, networks: Networks) -> bool:
        """Whether the module is the default one, of an encoder that is one for both or one for each."""
        methods = ("setup", "_forward", "_forward_train", "compute_values", "_outputs")
        module_class, default = networks.module_class, DefaultPPOTorchRLModule
        if not networks.is_default or any(getattr(module_class, m) is not getattr(default, m) for m in methods):
            return False
        own = getattr(networks.catalog_class, "build_actor_critic_encoder", None)
        return own is PPOCatalog.build_actor_critic_encoder
