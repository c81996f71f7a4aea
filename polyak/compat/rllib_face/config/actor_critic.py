"""The base of configs with a stochastic actor and a value function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.config.modules import Networks
from polyak.compat.rllib_face.models.actor_critics import ModulePolicy, RecurrentModulePolicy, WholeModulePolicy
from polyak.compat.rllib_face.models.catalog import PPOCatalog
from polyak.compat.rllib_face.models.default_modules import DefaultPPOTorchRLModule
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec, TorchRLModule
from polyak.compat.rllib_face.rollouts import WholeRollouts, with_part
from polyak.compat.sb3_face.overrides import changed, is_ours
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.hyperparameters.declaration import require


@dataclass(init=False, repr=False, eq=False)
class ActorCriticConfig(AlgorithmConfig):
    """Learns from rollouts of ``get_rollout_fragment_length()`` steps with PPO's module."""

    def get_rollout_fragment_length(self) -> int:
        """Returns the steps of each environment in a rollout: a multiple of a given length that makes the batch."""
        steps = -(-self.total_train_batch_size // (self.num_envs_per_env_runner * max(1, self.num_env_runners)))
        if self.rollout_fragment_length == "auto":
            return steps
        return -(-steps // self.rollout_fragment_length) * self.rollout_fragment_length

    @property
    def _is_whole(self) -> bool:
        """Whether rollouts are made of whole episodes."""
        return self.collects and self.batch_mode == "complete_episodes"

    def _rollout(self) -> tuple[int, int]:
        """Returns the steps of each environment in a rollout, and its rows; for whole episodes the least numbers."""
        if self._is_whole:
            return self.total_train_batch_size, self.total_train_batch_size
        steps = self.get_rollout_fragment_length()
        return steps, steps * self.num_envs_per_env_runner * max(1, self.num_env_runners)

    def _algorithm(self, algorithm: type[Any]) -> type[Any]:
        found = super()._algorithm(algorithm)
        if not self._is_whole:
            return found
        fix = "pieces see rollouts of equal lengths. Leave it out, or set batch_mode='truncate_episodes'."
        require(self.learner_connector is None, "learner_connector", self.learner_connector, fix)
        fix = "episodes of IMPALA and APPO are not dealt out. Use 0 or 1, or batch_mode='truncate_episodes'."
        alone = self.num_learners < 2 or not issubclass(algorithm, AsynchronousAlgorithm)
        require(alone, "num_learners", self.num_learners, fix)
        members = {"least": self.total_train_batch_size, "undivided": self.minibatch_size is None}
        return with_part(found, "rollouts", WholeRollouts, **members)

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule, catalog_class=PPOCatalog)

    def _policy(self, turned: bool) -> tuple[Any, dict[str, Any]]:
        networks = self._networks()
        kwargs = networks.policy_kwargs(turned)
        own = self._own_losses() or (networks.is_recurrent and self.shows_rollouts())
        passes = self._passes_actions()
        fix = "pieces behind a module do not see recurrent states. Leave use_lstm out."
        require(not (passes and networks.is_recurrent), "module_to_env_connector", self.module_to_env_connector, fix)
        fix = "recurrent modules learn from rollouts of equal lengths. Leave use_lstm out, or set 'truncate_episodes'."
        remembers = networks.is_recurrent or bool(self._own_state(networks))
        require(not (self._is_whole and remembers), "batch_mode", self.batch_mode, fix)
        if own or passes:
            return WholeModulePolicy, {**kwargs, "keeps_inputs": True, "remembers": self.shown_to_pieces == "rollouts"}
        apart = self._comes_apart(networks)
        if networks.is_recurrent and apart:
            return RecurrentModulePolicy, {**kwargs, "memory": "lstm"}
        return (ModulePolicy if apart else WholeModulePolicy), kwargs

    def _own_losses(self) -> list[str]:
        networks = self._networks()
        lstm = ["use_lstm"] if networks.is_recurrent and not self._comes_apart(networks) else []
        return [*super()._own_losses(), *self._own_state(networks), *lstm]

    def _own_state(self, networks: Networks) -> list[str]:
        """Returns the methods by which a program's module has a recurrent state of its own."""
        base = DefaultPPOTorchRLModule if networks.is_default else TorchRLModule
        return changed(networks.module_class, base, ["get_initial_state", "is_stateful"])

    def _networks(self) -> Networks:
        builds = ("build_actor_critic_encoder", "build_pi_head", "build_vf_head")
        return Networks(self, DefaultPPOTorchRLModule, builds, not_called.OF["ppo_catalog"])

    def _comes_apart(self, networks: Networks) -> bool:
        """Whether a program replaces at most the encoder and heads of the default module."""
        if not networks.is_default or changed(networks.module_class, DefaultPPOTorchRLModule, _OF_THE_MODULE):
            return False
        return is_ours(networks.catalog_class, PPOCatalog) and not changed(
            networks.catalog_class, PPOCatalog, _OF_THE_CATALOG
        )


_OF_THE_MODULE = (
    *("setup", "_outputs", "compute_values", "forward", "get_initial_state", "is_stateful"),
    *("_forward", "_forward_train", "_forward_exploration", "_forward_inference"),
    *("forward_train", "forward_exploration", "forward_inference"),
    *("get_train_action_dist_cls", "get_exploration_action_dist_cls", "get_inference_action_dist_cls"),
)
_OF_THE_CATALOG = ("build_actor_critic_encoder", "get_action_dist_cls", "_get_dist_cls_from_action_space")
"""Methods without which parts of the default module would not be used as it uses them."""
