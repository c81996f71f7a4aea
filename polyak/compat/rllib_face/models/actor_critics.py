"""Policies with a stochastic actor and state values whose networks are a module's: what PPO trains.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.arrays import mapped, paths
from polyak.compat.rllib_face.bases import BeforePPO
from polyak.compat.rllib_face.columns import Columns
from polyak.compat.rllib_face.models.default_modules import DefaultPPOTorchRLModule
from polyak.compat.rllib_face.models.distributions import OwnDistribution, distribution_of, family_of, outputs_for
from polyak.compat.rllib_face.models.encoders import ActorCriticEncoder, RecurrentEncoder
from polyak.compat.rllib_face.models.parts import (
    EncoderFeatures,
    built,
    check_output,
    features_of,
    layers_of,
    read_by,
    said_by,
)
from polyak.compat.rllib_face.models.rl_module import ValueFunctionAPI
from polyak.envs.masks import KEY
from polyak.envs.nested_spaces import is_composed
from polyak.hyperparameters.declaration import require
from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.distributions.product import ProductFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import MlpExtractor
from polyak.nn.networks.recurrent import Recurrent
from polyak.nn.plain import plain
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Decision, Noise, State, n_rows
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy


class ModulePolicy(ActorCriticPolicy):
    """The policy and state values of a module that is taken apart.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        module_class: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        catalog_class: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        model_config: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        turned: see :func:`~polyak.compat.rllib_face.models.parts.built`.
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
        module = built(module_class, catalog_class, model_config, turned, observation_space, action_space)
        kind = module.get_train_action_dist_cls()
        fix = f"its hook chooses {kind.__name__}: let get_action_dist_cls(self, framework) return that class instead."
        require(family_of(kind) is not None, "catalog_class", catalog_class, fix)
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

    def said_of_step(self, extras: Mapping[str, Any], memory: State | None) -> dict[str, Any]:
        """What is stored of a step under RLlib's names: nothing."""
        return {}

    def _reads(self, encoder: Any) -> Any:
        """The part of an encoder that is the features extractor."""
        return encoder

    def _read_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return dims

    @plain
    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        if isinstance(self.action_family, GaussianFamily | ProductFamily):
            return distribution_of(self.action_family, self.action_net(latent_pi))
        return super()._get_action_dist_from_latent(latent_pi)


class RecurrentModulePolicy(ModulePolicy, RecurrentActorCriticPolicy):
    """:class:`ModulePolicy` of a module whose encoder is a
    :class:`~polyak.compat.rllib_face.models.encoders.RecurrentEncoder`.

    Where actor and critic share it, the critic reads the actor's recurrent state and does not train it.
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


STATE, SLASH = "state_in__", "__"
"""How names of columns of a recurrent state begin, and what stands between the keys of nested dicts."""


def nested(memory: Mapping[str, Any]) -> dict[str, Any]:
    """A recurrent state as a module has it, of the columns that it is stored in."""
    found: dict[str, Any] = {}
    for name in (name for name in memory if name.startswith(STATE)):
        *above, last = name.removeprefix(STATE).split(SLASH)
        place = found
        for key in above:
            place = place.setdefault(key, {})
        place[last] = memory[name]
    return found


class WholeModulePolicy(ActorCriticPolicy):
    """The policy and state values of a module that is called whole: each of its forward passes and distributions where
    RLlib calls it.

    Args:
        measures_divergence: store what own distributions are made of, so that their ``kl`` can be asked in losses.
        keeps_inputs: store what all distributions are made of.
        remembers: what trains it knows recurrent states.
        options: those of :class:`ModulePolicy`.

    Attributes:
        explored: environment steps that it has chosen actions for, which ``forward_exploration`` gets as ``t``.
    """

    explored: int = 0
    needs_values: ClassVar[bool] = True
    """Whether what trains it learns state values."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        module_class: Any,
        catalog_class: Any = None,
        model_config: Any = None,
        turned: bool = False,
        measures_divergence: bool = False,
        keeps_inputs: bool = False,
        remembers: bool = False,
        **options: Any,
    ) -> None:
        module = built(module_class, catalog_class, model_config, turned, observation_space, action_space)
        fix = "state values are learned: write compute_values(self, batch, embeddings=None), which returns [B]."
        require(isinstance(module, ValueFunctionAPI) or not self.needs_values, "module_class", module_class, fix)
        fix = (
            "only PPO learns from a recurrent module of one's own. Use model_config={'use_lstm': True} of the default."
        )
        initial = module.get_initial_state() if module.is_stateful() else {}
        self._state = {name: torch.as_tensor(np.asarray(part)) for name, part in paths(initial)}
        require(remembers or not self._state, "module_class", module_class, fix)
        self._module, self._turned = (module,), turned
        self._in_parts = isinstance(observation_space, spaces.Dict)
        self._reads_masks = self._in_parts and KEY in observation_space.spaces  # type: ignore[attr-defined]
        self._measures_divergence, self._keeps_inputs = measures_divergence, keeps_inputs
        super().__init__(observation_space, action_space, net_arch=[], ortho_init=False, **options)

    @property
    def rl_module(self) -> Any:
        """The module."""
        return self._module[0]

    def _build_networks(self) -> None:
        self.module = self.rl_module
        self.mlp_extractor = MlpExtractor(1, [], nn.Identity, device="cpu")
        self.features_extractor = nn.Identity()
        kinds = self.module.get_train_action_dist_cls(), self.module.get_exploration_action_dist_cls()
        own = any(kind is not None and family_of(kind) is None for kind in kinds)
        if own:
            fix = "an own distribution has actions of one array: Discrete, MultiDiscrete or a Box."
            require(not is_composed(self.action_space), "action_space", self.action_space, fix)
        if self._keeps_inputs or (own and self._measures_divergence):
            self.stores = {Columns.ACTION_DIST_INPUTS: (self._n_outputs(kinds[1]),)}

    def _n_outputs(self, kind: Any) -> int:
        """Numbers in a row of what the module says of the action distribution."""
        if (family := family_of(kind)) is not None:
            return outputs_for(family)
        try:
            return int(kind.required_input_dim(space=self.action_space, model_config=self.module.model_config))
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise PolicyError(
                f"{kind.__name__} must write required_input_dim(space, model_config), which returns how many numbers "
                "from_logits() reads in a row: the divergence from the last policy is measured by them."
            ) from error

    def _batch(self, obs: Any, state: State | None = None) -> dict[str, Any]:
        """Raw observations as the module reads them; of a recurrent one as sequences of one step."""
        read = read_by(self, self._turned, obs)
        if not self._state:
            return {Columns.OBS: read}
        memory = state or self.initial_memory(n_rows(read)) or {}
        return {Columns.OBS: mapped(lambda part: part[:, None], read), Columns.STATE_IN: nested(memory)}

    # -- recurrent state -----------------------------------------------------------------------------------------------

    def initial_memory(self, batch: int) -> State | None:
        return {
            STATE + name.replace("/", SLASH): part.expand(batch, *part.shape).clone()
            for name, part in self._state.items()
        } or None

    acting_memory = initial_memory

    def said_of_step(self, extras: Mapping[str, Any], memory: State | None) -> dict[str, Any]:
        """What it has said of a step under RLlib's names, by what is stored of it, and the state after it: [N, ...]"""
        found = {name: extras[name] for name in self.stores}
        found |= {Columns.ACTION_LOGP: extras["log_probs"]} if "log_probs" in extras else {}
        states = {Columns.STATE_IN: nested(extras), Columns.STATE_OUT: nested(memory or {})} if self._state else {}
        return found | states

    def _values(self, outputs: Mapping[str, Any], batch: dict[str, Any]) -> Tensor:
        """State values [B, 1]."""
        rows = n_rows(batch[Columns.OBS])
        values = self.module.compute_values(batch, outputs.get(Columns.EMBEDDINGS))
        check_output(self.module, "compute_values(), state values", values, (rows,), (rows, 1))
        return values.reshape(-1, 1)

    # -- distributions -------------------------------------------------------------------------------------------------

    def _distribution(self, kind: Any, outputs: Mapping[str, Any], batch: dict[str, Any], method: str) -> Distribution:
        """The distribution of a class, of what a forward pass has returned."""
        name = Columns.ACTION_DIST_INPUTS
        if name not in outputs:
            raise PolicyError(
                f"{method}() of {type(self.module).__name__} must return {name!r}, got {sorted(outputs)}."
            )
        family, logits = family_of(kind), outputs[name]
        if family is None:
            return OwnDistribution(kind.from_logits(logits))
        shape = n_rows(batch[Columns.OBS]), outputs_for(family)
        check_output(self.module, f"{name!r}, for the actions {self.action_space}", logits, shape)
        return distribution_of(family, logits)

    def _of_training(self, batch: dict[str, Any]) -> tuple[dict[str, Any], Distribution]:
        """What ``forward_train`` returns, and its distribution."""
        if self._in_parts and isinstance(self.module, ValueFunctionAPI):
            with torch.no_grad():  # as in RLlib, which may bring the batch into another form
                self.module.compute_values(batch)
        outputs = self.module.forward_train(batch)
        kind = self.module.get_train_action_dist_cls()
        return outputs, self._distribution(kind, outputs, batch, "forward_train")

    def get_distribution(self, obs: Obs, action_dist_inputs: Tensor | None = None) -> Distribution:
        return self._of_training(self._batch(obs))[1]

    def predict_values(self, obs: Obs) -> Tensor:
        return self._values({}, self._batch(obs))

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, masks: Tensor | None = None, entropy_index: float = 1.0, **extras: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.compared(obs, actions, masks, entropy_index)[:3]

    def compared(
        self,
        obs: Obs,
        actions: Tensor,
        masks: Tensor | None = None,
        entropy_index: float = 1.0,
        action_dist_inputs: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """:meth:`evaluate_actions`, and the divergence [B] from the distributions that ``action_dist_inputs`` [B, N]
        were those of when the actions were chosen; ``None`` without them."""
        batch = self._batch(obs)
        outputs, distribution = self._of_training(batch)
        divergence = None
        if action_dist_inputs is not None:
            before = self.module.get_exploration_action_dist_cls().from_logits(action_dist_inputs)
            own = distribution.own if isinstance(distribution, OwnDistribution) else None
            now = own or self.module.get_train_action_dist_cls().from_logits(outputs[Columns.ACTION_DIST_INPUTS])
            divergence = before.kl(now)
        distribution = distribution if masks is None or self._reads_masks else distribution.masked(masks)
        entropy = distribution.entropy() if entropy_index == 1 else distribution.tsallis_entropy(entropy_index)
        return self._values(outputs, batch), distribution.log_prob(self._taken(actions)), entropy, divergence

    def _taken(self, actions: Tensor) -> Tensor:
        """Stored actions as distributions read them."""
        flat = self._flat(actions)
        return flat.long() if isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete) else flat

    # -- acting --------------------------------------------------------------------------------------------------------

    def _acted(self, batch: dict[str, Any], deterministic: bool) -> tuple[Tensor, dict[str, Any], Distribution | None]:
        """Actions, what the forward pass returned, and the distribution, if the module leaves the choice to it."""
        name, outputs, ask = said_by(self.module, batch, deterministic, self.explored)
        if self._state:  # sequences of one step
            outputs = {key: part if key == Columns.STATE_OUT else part[:, 0] for key, part in outputs.items()}
        if Columns.ACTIONS in outputs:
            return outputs[Columns.ACTIONS], outputs, None
        distribution = self._distribution(ask(), outputs, batch, name)
        return distribution.get_actions(deterministic), outputs, distribution

    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        batch = self._batch(obs)
        actions, outputs, log_probs = self._chosen(batch, deterministic)
        return self._shaped(actions), self._values(outputs, batch), log_probs

    def _chosen(self, batch: dict[str, Any], deterministic: bool) -> tuple[Tensor, dict[str, Any], Tensor]:
        """Actions, what the forward pass returned, and log-densities [B]."""
        actions, outputs, distribution = self._acted(batch, deterministic)
        if Columns.ACTION_LOGP in outputs:
            return actions, outputs, outputs[Columns.ACTION_LOGP]
        if distribution is None:
            kind = self.module.get_exploration_action_dist_cls()
            distribution = self._distribution(kind, outputs, batch, "forward_exploration")
        return actions, outputs, distribution.log_prob(actions)

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if masks is not None and not self._reads_masks:
            raise PolicyError(f"{type(self.module).__name__} is called whole, and does not read action masks.")
        batch = self._batch(obs, state)
        actions, outputs, log_probs = self._chosen(batch, noise is None)
        self.explored += 0 if noise is None else len(log_probs)
        said = {"log_probs": log_probs} | {name: outputs[name] for name in self.stores}
        if not self._state:
            worth = {"values": self._values(outputs, batch).flatten()} if self.needs_values else {}
            return Decision(self._shaped(actions), said | worth)
        then = {STATE + name.replace("/", SLASH): part for name, part in paths(outputs[Columns.STATE_OUT])}
        return Decision(self._shaped(actions), said, then)

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return self._shaped(self._acted(self._batch(obs), deterministic)[0])

    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self.act(observation, deterministic)

    def critic_parameters(self) -> list[nn.Parameter]:
        raise PolicyError("a module that is called whole does not say which of its parameters serve values alone.")


class ActorPolicy(WholeModulePolicy):
    """A module that need not have state values."""

    needs_values = False


class DivergenceOfModule(BeforePPO):
    """Before a learner of PPO: how far a module's own distributions have moved, as their ``kl`` says."""

    policy: Any
    _divergence: Tensor | None = None

    def evaluated(self, batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        if Columns.ACTION_DIST_INPUTS not in batch.extras:
            return super().evaluated(batch)
        values, log_prob, entropy, self._divergence = self.policy.compared(
            batch.observations, batch.actions, **batch.extras
        )
        return values, log_prob, entropy

    def gradient_step(self, batch: Any) -> Any:
        try:
            return super().gradient_step(batch)
        finally:
            self._divergence = None  # a graph that could not be copied

    def divergence(self, batch: Any, log_ratio: Tensor) -> Tensor:
        if self._divergence is None:
            return super().divergence(batch, log_ratio)
        return self._divergence.mean()


class UnclippedValueLoss(BeforePPO):
    """Before a learner of PPO whose values are clipped: their loss without it is reported, too."""

    def objective(self, batch: Any, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Any:
        found = super().objective(batch, values, log_prob, entropy)
        unclipped = (values.detach() - batch.returns).square().mean()
        return found._replace(metrics={**found.metrics, "value_loss_unclipped": unclipped})


class WithoutCritic(BeforePPO):
    """Before a learner of PPO that has no critic: its values lose nothing, and all count 0, so that advantages are
    discounted returns."""

    def objective(self, batch: Any, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Any:
        batch = batch._replace(returns=values.detach())
        return super().objective(batch, values, log_prob, entropy)

    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Any:
        found = super().evaluation(rows, acting)
        return {**found, "values": torch.zeros_like(found["values"])}

    def next_values(self, successors: Any, acting: Any) -> Tensor:
        return torch.zeros_like(super().next_values(successors, acting))
