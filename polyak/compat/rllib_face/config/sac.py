"""The config of SAC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from polyak.algorithms.sac import SAC
from polyak.algorithms.tqc import TQC
from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.config.base import Plain
from polyak.compat.rllib_face.config.dqn import ReplayConfig, prioritized
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.modules import Networks
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.learners.values import ReportsCritics, SACTorchLearner
from polyak.compat.rllib_face.models.catalog import Catalog
from polyak.compat.rllib_face.models.default_modules import DefaultSACTorchRLModule
from polyak.compat.rllib_face.models.layers import activation_called
from polyak.compat.rllib_face.models.parts import AsItStands, CatalogFeatures
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec
from polyak.hyperparameters.declaration import Count, Fraction, Natural, NonNegative, Positive, require

_READ = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "conv_activation", "head_", "use_"),
    *("max_seq_len", "lstm_cell_size"),
)
"""Prefixes of the entries of ``model_config`` that SAC's networks read."""


def policy_kwargs_of(config: Any, turned: bool) -> dict[str, Any]:
    """Returns the keyword arguments of polyak's policy for an actor and critics.

    Args:
        config: a config with ``twin_q``.
        turned: the policy sees images with the channels first where the environment has them last.
    """
    networks = Networks(config, DefaultSACTorchRLModule, ("build_encoder",), not_called.OF["sac_catalog"])
    fix = (
        f"its networks are its own: give rl_module(model_config=...), or use polyak.{config.name} with a policy class."
    )
    require(networks.module_class is DefaultSACTorchRLModule, "rl_module_spec", config.rl_module_spec, fix)
    options = networks.options
    for name, value in networks.given.items():
        read = name.startswith(_READ) and "initializer" not in name and "layernorm" not in name
        require(read, f"model_config[{name!r}]", value, f"{config.name}'s networks do not read it.")
    heads, activation = options["head_fcnet_hiddens"], options["fcnet_activation"]
    same = not heads or options["head_fcnet_activation"] == activation
    fix = f"all layers of {config.name}'s networks have one: use fcnet_activation={activation!r}."
    require(same, "model_config['head_fcnet_activation']", options["head_fcnet_activation"], fix)
    kwargs: dict[str, Any] = {
        "net_arch": [*options["fcnet_hiddens"], *heads],
        "activation_fn": activation_called(activation),
        "n_critics": 2 if config.twin_q else 1,
        "optimizer_kwargs": {"eps": 1e-8},
        "features_extractor_class": AsItStands,
    }
    if options["use_lstm"]:
        kwargs |= {"memory": "lstm", "memory_size": options["lstm_cell_size"]}
        kwargs["max_seq_len"] = options["max_seq_len"]
    if options["conv_filters"] is not None or turned or networks.catalog_class is not Catalog:
        given = {"catalog_class": networks.catalog_class, "model_config": options, "turned": turned}
        kwargs |= {"features_extractor_class": CatalogFeatures, "features_extractor_kwargs": given}
        kwargs["net_arch"] = list(heads) or options["fcnet_hiddens"]
    return kwargs


@dataclass(init=False, repr=False, eq=False)
@fixed
class SACConfig(ReplayConfig):
    """SAC's settings (arXiv:1812.05905)."""

    actor_lr: NonNegative | Points = 3e-5
    """Learning rate of the actor: a number, or points [[environment step, value], ...]."""
    critic_lr: NonNegative | Points = 3e-4
    """Learning rate of the critics."""
    alpha_lr: NonNegative | Points = 3e-4
    """Learning rate of the temperature."""
    train_batch_size: Count = 256
    """Used if ``train_batch_size_per_learner`` is ``None``."""
    twin_q: bool = True
    """Two critics, of which the smaller value is used; ``False``: one."""
    tau: Fraction = 0.005
    """Rate at which target networks follow; 1 copies."""
    initial_alpha: Positive = 1.0
    """Temperature at first."""
    target_entropy: Annotated[float | Literal["auto"], To("target_entropy")] = "auto"
    """Entropy to hold; ``"auto"``: minus the number of action dimensions."""
    target_network_update_freq: Natural = 0
    """Environment steps between two updates of the target networks; 0: after each gradient step."""
    num_steps_sampled_before_learning_starts: Natural = 1500
    """Environment steps before the first gradient step, with actions of the policy."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "train_batch_size_per_learner": 256,
        "replay_buffer_config": prioritized(1_000_000),
        "min_time_s_per_iteration": 1,
        "min_sample_timesteps_per_iteration": 100,
    }
    name: ClassVar[str] = "SAC"
    algorithm: ClassVar[type[SAC]] = SAC
    scales_actions: ClassVar[bool] = False

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultSACTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> Any:
        return SACTorchLearner

    def plain(self, image_channels_last: bool = False) -> Plain:
        replay = self._replay(image_channels_last)
        steps = replay["train_freq"] * self.num_envs_per_env_runner / replay["gradient_steps"]
        kwargs = {
            **replay,
            **self._of_losses(image_channels_last),
            "target_update_interval": max(round(self.target_network_update_freq / steps), 1),
        }
        return Plain(self._algorithm(self.algorithm), "MlpPolicy", kwargs)

    reports: ClassVar = ReportsCritics

    def _of_losses(self, turned: bool) -> dict[str, Any]:
        """Keyword arguments of actor, critics and temperature."""
        actor, critic, alpha = (self.schedule(f"{name}_lr") for name in ("actor", "critic", "alpha"))
        return {
            "learning_rate": critic,
            "learning_rates": {"actor": actor, "critic": critic, "ent_coef": alpha},
            "ent_coef": f"auto_{self.initial_alpha}",
            "policy_kwargs": self._policy_kwargs(turned),
        }

    def _policy_kwargs(self, turned: bool) -> dict[str, Any]:
        return policy_kwargs_of(self, turned)


@dataclass(init=False, repr=False, eq=False)
@fixed
class TQCConfig(SACConfig):
    """TQC's settings (arXiv:2005.04269), with SAC's."""

    n_quantiles: Count = 25
    """Quantiles of each critic."""
    n_critics: Count = 2
    """Number of critics."""
    top_quantiles_to_drop_per_net: Annotated[Natural, To("top_quantiles_to_drop_per_net")] = 2
    """Highest quantiles left out of the target, for each critic."""

    name: ClassVar[str] = "TQC"
    algorithm: ClassVar[type[SAC]] = TQC

    def get_default_learner_class(self) -> Any:
        return TQC.learner_class

    def _policy_kwargs(self, turned: bool) -> dict[str, Any]:
        sizes = {"n_quantiles": self.n_quantiles, "n_critics": self.n_critics}
        return {**super()._policy_kwargs(turned), **sizes}
