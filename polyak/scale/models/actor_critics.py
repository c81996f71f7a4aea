"""Policies with a stochastic actor and state values whose networks are a module's: what PPO trains.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.core.hyperparameters import require
from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.errors import PolicyError
from polyak.nn.fast.acting import Chain, plain
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import MlpExtractor
from polyak.nn.networks.recurrent import Recurrent
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import n_rows
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.scale.columns import Columns
from polyak.scale.models.default_modules import DefaultPPOTorchRLModule
from polyak.scale.models.distributions import distribution_of, outputs_for
from polyak.scale.models.encoders import ActorCriticEncoder, RecurrentEncoder
from polyak.scale.models.parts import Built, EncoderFeatures, Layers, check_output, features_of, layers_of
from polyak.scale.models.rl_module import ValueFunctionAPI


class ModulePolicy(ActorCriticPolicy):
    """The policy and state values of a module that is taken apart.

    Args:
        observation_space: what it reads.
        action_space: what it chooses from.
        module_class: see :class:`Built`.
        catalog_class: see :class:`Built`.
        model_config: see :class:`Built`.
        turned: see :class:`Built`.
        options: those of :class:`~polyak.nn.policies.actor_critic.ActorCriticPolicy`.

    Attributes:
        rl_module: the module whose parts these are.
    """

    action_net: Any
    value_net: Any
    pi_features_extractor: Any

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        module_class: Any = DefaultPPOTorchRLModule,
        catalog_class: Any = None,
        model_config: Mapping[str, Any] | None = None,
        turned: bool = False,
        **options: Any,
    ) -> None:
        module = Built(module_class, catalog_class, model_config, turned)(observation_space, action_space)
        self._module, self._turned = (module,), turned  # in a tuple torch does not see it a second time
        shared = getattr(module.encoder.config, "shared", True)
        super().__init__(
            observation_space,
            action_space,
            net_arch=[],
            ortho_init=False,
            features_extractor_class=EncoderFeatures,
            share_features_extractor=shared,
            **options,
        )

    @property
    def rl_module(self) -> Any:
        """The module whose parts these are."""
        return self._module[0]

    def _build_networks(self) -> None:
        module = self.rl_module
        encoder, dims = module.encoder, tuple(module.catalog.latent_dims)
        if type(encoder) is ActorCriticEncoder:
            self.pi_features_extractor = features_of(self._reads(encoder.of_actor), self._read_dims(dims), self._turned)
            self.vf_features_extractor = (
                self.pi_features_extractor
                if self.share_features_extractor
                else features_of(self._reads(encoder.of_critic), self._read_dims(dims), self._turned)
            )
        self.features_extractor = self.pi_features_extractor
        self.features_dim = int(self.pi_features_extractor.features_dim)
        self._build_mlp_extractor()
        self.action_net, self.value_net = layers_of(module.pi), layers_of(module.vf)

    def _reads(self, encoder: Any) -> Any:
        """The part of an encoder that is the features extractor."""
        return encoder

    def _read_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return dims

    @property
    def values_while_acting(self) -> bool:
        """Those of perceptrons are computed for a whole rollout at once, as where nothing is shared."""
        return super().values_while_acting and type(self.features_extractor) is not Layers

    @plain
    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        if isinstance(self.action_family, GaussianFamily):
            return distribution_of(self.action_family, self.action_net(latent_pi))
        return super()._get_action_dist_from_latent(latent_pi)

    def acting_chain(self) -> Chain | None:
        return None if isinstance(self.action_family, GaussianFamily) else super().acting_chain()


class RecurrentModulePolicy(ModulePolicy, RecurrentActorCriticPolicy):
    """:class:`ModulePolicy` of a module whose encoder is a :class:`~polyak.scale.models.encoders.RecurrentEncoder`.

    Where actor and critic share it, the critic reads what the actor remembers and does not train it.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        model_config: Mapping[str, Any],
        max_seq_len: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            model_config=model_config,
            memory_size=model_config["lstm_cell_size"],
            critic_memory="shared" if model_config["vf_share_layers"] else "own",
            max_seq_len=max_seq_len or model_config["max_seq_len"],
            **options,
        )

    def _reads(self, encoder: Any) -> Any:
        if not isinstance(encoder, RecurrentEncoder) or encoder.tokenizer is None:
            raise PolicyError("use_lstm=True needs a RecurrentEncoder with a tokenizer: see get_tokenizer_config().")
        return encoder.tokenizer

    def _read_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        base = self.rl_module.encoder.config.base_encoder_config
        return tuple(base.tokenizer_config.output_dims)

    def _build_networks(self) -> None:
        ModulePolicy._build_networks(self)
        self._build_memories()

    def _build_memories(self) -> None:
        encoder = self.rl_module.encoder
        self.actor_memory: Recurrent = encoder.of_actor.core
        if self.critic_reads == "own":
            self.critic_memory: Recurrent = encoder.of_critic.core

    @property
    def values_while_acting(self) -> bool:
        return False


class WholeModulePolicy(ActorCriticPolicy):
    """The policy and state values of a module with forward passes of its own. Its arguments are those of
    :class:`ModulePolicy`."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        module_class: Any,
        catalog_class: Any = None,
        model_config: Any = None,
        turned: bool = False,
        **options: Any,
    ) -> None:
        module = Built(module_class, catalog_class, model_config, turned)(observation_space, action_space)
        fix = "PPO learns state values: write compute_values(self, batch, embeddings=None), which returns [B]."
        require(isinstance(module, ValueFunctionAPI), "module_class", module_class, fix)
        fix = "a module of one's own cannot remember yet. Use model_config={'use_lstm': True} of the default module."
        require(not module.is_stateful(), "module_class", module_class, fix)
        self._module, self._turned = (module,), turned
        super().__init__(observation_space, action_space, net_arch=[], ortho_init=False, **options)

    @property
    def rl_module(self) -> Any:
        """The module."""
        return self._module[0]

    def _build_networks(self) -> None:
        self.module = self.rl_module
        self.mlp_extractor = MlpExtractor(1, [], nn.Identity, device="cpu")
        self.features_extractor = nn.Identity()

    def _batch(self, obs: Any) -> dict[str, Any]:
        """Raw observations as the module reads them."""
        read: Any = self.preprocess(obs)
        return {Columns.OBS: read.movedim(1, -1) if self._turned else read}

    def _values(self, outputs: Mapping[str, Any], batch: dict[str, Any]) -> Tensor:
        """State values [B, 1]."""
        values = self.module.compute_values(batch, outputs.get(Columns.EMBEDDINGS))
        rows = n_rows(batch[Columns.OBS])
        check_output(self.module, "compute_values(), state values", values, (rows,), (rows, 1))
        return values.reshape(-1, 1)

    def _distribution(self, outputs: Mapping[str, Any], batch: dict[str, Any]) -> Distribution:
        name, kind = Columns.ACTION_DIST_INPUTS, self._dist_class
        if name not in outputs:
            raise PolicyError(
                f"forward_train() of {type(self.module).__name__} must return {name!r}, got {sorted(outputs)}."
            )
        if (family := getattr(kind, "family", None)) is not None:
            shape = n_rows(batch[Columns.OBS]), outputs_for(family)
            check_output(self.module, f"{name!r}, for the actions {self.action_space}", outputs[name], shape)
        values: Distribution = kind.from_logits(outputs[name]).values
        return values

    @property
    def _dist_class(self) -> Any:
        return self.module.get_train_action_dist_cls()

    def get_distribution(self, obs: Obs) -> Distribution:
        batch = self._batch(obs)
        return self._distribution(self.module.forward_train(batch), batch)

    def predict_values(self, obs: Obs) -> Tensor:
        return self._values({}, self._batch(obs))

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, masks: Tensor | None = None, entropy_index: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        batch = self._batch(obs)
        outputs = self.module.forward_train(batch)
        distribution = self._distribution(outputs, batch)
        distribution = distribution if masks is None else distribution.masked(masks)
        entropy = distribution.entropy() if entropy_index == 1 else distribution.tsallis_entropy(entropy_index)
        return self._values(outputs, batch), distribution.log_prob(self._flat(actions)), entropy

    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        batch = self._batch(obs)
        outputs = self.module.forward_train(batch)
        distribution = self._distribution(outputs, batch)
        actions = distribution.get_actions(deterministic)
        return self._shaped(actions), self._values(outputs, batch), distribution.log_prob(actions)

    @property
    def values_while_acting(self) -> bool:
        return True

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        batch = self._batch(obs)
        if deterministic:
            return self._shaped(self._distribution(self.module.forward_inference(batch), batch).mode())
        return self._shaped(self._distribution(self.module.forward_exploration(batch), batch).sample())

    def _decide_among(self, masks: Tensor | None, obs: Obs, noise: Any) -> Any:
        raise PolicyError(f"{type(self.module).__name__} is called whole, and does not heed action masks.")

    def critic_parameters(self) -> list[nn.Parameter]:
        raise PolicyError("a module that is called whole does not say which of its parameters serve values alone.")
