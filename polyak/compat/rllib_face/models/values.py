"""Policies that act greedily by the action values of a module: what DQN trains.

Shapes: B rows, A actions, K atoms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.algorithms.dqn import taken
from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.bases import BeforeAlgorithm, BeforeDQN
from polyak.compat.rllib_face.columns import QF_LOGITS, QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS, Columns
from polyak.compat.rllib_face.models.default_modules import DefaultDQNTorchRLModule
from polyak.compat.rllib_face.models.encoders import RecurrentEncoder
from polyak.compat.rllib_face.models.parts import (
    EncoderFeatures,
    built,
    check_output,
    features_of,
    layers_of,
    read_by,
    said_by,
)
from polyak.compat.rllib_face.models.rl_module import QNetAPI, TorchRLModule
from polyak.compat.sb3_face.overrides import changed, refuse
from polyak.envs.masks import KEY
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Objective
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.networks.streams import Dueling
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Noise, State, n_rows
from polyak.nn.policies.value import CategoricalQNetwork, QNetwork, ValuePolicy
from polyak.ops.updates import polyak_update

_INFERENCE = ("_forward", "_forward_inference", "forward_inference")
_EXPLORATION = ("_forward_exploration", "forward_exploration")


LOSSES = ("_forward_train", "forward_train", "forward_target")
"""Methods that say what losses are made of."""
TARGETS = ("make_target_networks", "get_target_network_pairs")
"""Methods that say what lags behind."""


def refuse_of_dqn(module_class: type[Any]) -> None:
    """Refuse a module that overrides what DQN does not call.

    Raises:
        HyperparameterError: naming the method.
    """
    if not issubclass(module_class, DefaultDQNTorchRLModule):
        return
    reasons = dict(not_called.OF["dqn_module"])
    if not explores_itself(module_class) and not chooses_itself(module_class, _INFERENCE):
        kinds = "get_exploration_action_dist_cls", "get_inference_action_dist_cls"
        reasons |= dict.fromkeys(kinds, not_called.OF["dqn_catalog"]["get_action_dist_cls"])
    refuse("rl_module_spec.module_class", module_class, DefaultDQNTorchRLModule, reasons)


def chooses_itself(module_class: type[Any], methods: tuple[str, ...]) -> list[str]:
    """Those of some forward passes that a module's class has in place of its default's."""
    default = DefaultDQNTorchRLModule if issubclass(module_class, DefaultDQNTorchRLModule) else TorchRLModule
    return changed(module_class, default, methods)


def explores_itself(module_class: type[Any]) -> bool:
    """Whether a module has an exploration of its own, in place of the algorithm's random actions."""
    return bool(chooses_itself(module_class, _EXPLORATION))


class OfModule:
    """The layers of a value network are the heads of a module.

    Args:
        module: taken apart by :class:`ModuleValuePolicy`.
        options: those of the network.
    """

    def __init__(self, *args: Any, module: Any, **options: Any) -> None:
        self._module = (module,)
        super().__init__(*args, **options)

    def _layers(self, inputs: int, n_actions: int, outputs: int, net_arch: Any) -> list[nn.Module]:
        module = self._module[0]
        advantage = layers_of(module.af)
        return [advantage] if module.vf is None else [Dueling(layers_of(module.vf), advantage, n_actions)]


class ModuleQNetwork(OfModule, QNetwork):
    """Action values of a module."""


class ModuleCategoricalQNetwork(OfModule, CategoricalQNetwork):
    """Distributions of returns of a module."""


class WholeQNetwork(QNetwork):
    """Action values of a module with a forward pass of its own: [B, A]

    Args:
        module: called whole.
        turned: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        options: those of :class:`~polyak.nn.policies.value.QNetwork`.
    """

    def __init__(self, *args: Any, module: Any, turned: bool = False, **options: Any) -> None:
        self._module, self._turned = (module,), turned
        super().__init__(*args, **options)

    def _build_layers(self, n_actions: int) -> None:
        self.module = self._module[0]

    def _outputs(self, obs: Any) -> dict[str, Tensor]:
        read = read_by(self, self._turned, obs)
        values: dict[str, Tensor] = self.module.compute_q_values({Columns.OBS: read})
        self._check(values, n_rows(read))
        return values

    def _check(self, values: dict[str, Tensor], rows: int) -> None:
        """That what the module says has the shape of as many rows and actions."""
        self._check_one(values, QF_PREDS, (rows, int(self.action_space.n)))

    def _check_one(self, values: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
        check_output(self.module, f"compute_q_values(), {name!r}", values.get(name), shape)

    def forward(self, obs: Obs) -> Tensor:
        return self._outputs(obs)[QF_PREDS]


class WholeCategoricalQNetwork(WholeQNetwork, CategoricalQNetwork):
    """Distributions of returns of a module with a forward pass of its own."""

    def logits(self, obs: Obs) -> Tensor:
        """[B, K, A]"""
        return self._outputs(obs)[QF_LOGITS].transpose(-1, -2)

    def _check(self, values: dict[str, Tensor], rows: int) -> None:
        self._check_one(values, QF_LOGITS, (rows, int(self.action_space.n), len(self.support)))

    def forward(self, obs: Obs) -> Tensor:
        return self.mean(self.logits(obs))


class ModuleValuePolicy(ValuePolicy):
    """Acts greedily by the action values of a module, and keeps a lagging copy of it.

    Args:
        observation_space: space of the observations.
        action_space: a Discrete.
        module_class: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        catalog_class: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        model_config: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        turned: see :func:`~polyak.compat.rllib_face.models.parts.built`.
        n_atoms: atoms of distributions of returns; ``None``: values alone.
        v_min, v_max: the first and the last of them.
        dueling: the module has a head of state values, too.
        sigma0: of noisy heads; ``None``: they are not.
        options: ``memory`` and what belongs to it: see :class:`~polyak.nn.policies.value.GreedyPolicy`.

    Attributes:
        rl_module: the module that learns.
        explored: environment steps that it has chosen actions for, which ``forward_exploration`` gets as ``t``.
    """

    explored: int = 0

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: Any,
        *,
        module_class: Any = DefaultDQNTorchRLModule,
        catalog_class: Any = None,
        model_config: Mapping[str, Any] | None = None,
        turned: bool = False,
        n_atoms: int | None = None,
        v_min: float = -10.0,
        v_max: float = 10.0,
        dueling: bool = False,
        sigma0: float | None = None,
        **options: Any,
    ) -> None:
        decided = {"num_atoms": n_atoms or 1, "v_min": v_min, "v_max": v_max, "dueling": dueling, "sigma0": sigma0}
        self._kinds, self._turned = (module_class, catalog_class, {**(model_config or {}), **decided}), turned
        self._made: list[Any] = []
        self._of_atoms = {} if n_atoms is None else {"n_atoms": n_atoms, "v_min": v_min, "v_max": v_max}
        super().__init__(
            observation_space, action_space, features_extractor_class=EncoderFeatures, net_arch=[], **options
        )

    @property
    def rl_module(self) -> Any:
        """The module that learns."""
        return self._made[0]

    @property
    def distributional(self) -> bool:
        """Whether it has distributions of returns."""
        return bool(self._of_atoms)

    def _build_networks(self) -> None:
        super()._build_networks()
        module, target = self._made
        if hasattr(module, "adopt_target") and not chooses_itself(type(module), ("make_target_networks",)):
            module.adopt_target(target)

    # -- acting --------------------------------------------------------------------------------------------------------

    def _asks(self, deterministic: bool) -> bool:
        """Whether the module chooses actions itself, rather than the largest of its values."""
        kind = type(self.rl_module)
        return bool(chooses_itself(kind, _INFERENCE)) if deterministic else explores_itself(kind)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        if not self._asks(deterministic):
            return super().act(obs, deterministic)
        read, module = read_by(self, self._turned, obs), self.rl_module
        name, outputs, ask = said_by(module, {Columns.OBS: read}, deterministic, self.explored)
        if Columns.ACTIONS in outputs:
            actions = outputs[Columns.ACTIONS]
        elif Columns.ACTION_DIST_INPUTS in outputs:
            distribution = ask().from_logits(outputs[Columns.ACTION_DIST_INPUTS])
            actions = (distribution.to_deterministic() if deterministic else distribution).sample()
        else:
            wanted = f"{Columns.ACTIONS!r} or {Columns.ACTION_DIST_INPUTS!r}"
            raise PolicyError(f"{name}() of {type(module).__name__} must return {wanted}, got {sorted(outputs)}.")
        check_output(module, f"{Columns.ACTIONS!r}", actions, (n_rows(read),))
        return actions

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if masks is not None and self._asks(noise is None):
            space: Any = self.observation_space
            if not isinstance(space, spaces.Dict) or KEY not in space.spaces:
                raise PolicyError(
                    f"{type(self.rl_module).__name__} chooses actions itself, and does not read action masks."
                )
            masks = None
        outcome = super().decide(obs, noise, state, masks)
        self.explored += 0 if noise is None else len(outcome.actions)
        return outcome

    def columns_of(self, batch: Any) -> dict[str, Any]:
        """A replayed batch under RLlib's names, as the module reads it."""
        columns = {Columns.OBS: batch.observations, Columns.NEXT_OBS: batch.next_observations}
        read = {name: read_by(self, self._turned, part) for name, part in columns.items()}
        return {**read, Columns.ACTIONS: batch.actions.flatten().long(), Columns.REWARDS: batch.rewards}

    def said_of(self, batch: Any) -> dict[str, Tensor]:
        """What ``forward_train`` of the module returns of a replayed batch."""
        columns, module = self.columns_of(batch), self.rl_module
        outputs: dict[str, Tensor] = module.forward_train(columns)
        shape = len(columns[Columns.ACTIONS]), int(self.action_space.n)
        check_output(module, f"forward_train(), {QF_PREDS!r}", outputs.get(QF_PREDS), shape)
        return outputs

    # -- networks ------------------------------------------------------------------------------------------------------

    def make_q_net(self) -> QNetwork:
        module = built(*self._kinds, self._turned, self.observation_space, self.action_space)
        if chooses_itself(type(module), ("make_target_networks",)):
            module.make_target_networks()
        self._made.append(module)
        default = DefaultDQNTorchRLModule
        apart = isinstance(module, default) and not changed(type(module), default, ["compute_q_values"])
        common: dict[str, Any] = {"normalize_images": self.normalize_images, "net_arch": [], **self._of_atoms}
        given = (self.observation_space, self.action_space)
        if apart:
            features = self._features(module)
            kind = ModuleCategoricalQNetwork if self._of_atoms else ModuleQNetwork
            return kind(*given, features, features.features_dim, module=module, **common)
        fix = "DQN learns action values: write compute_q_values(self, batch), which returns {'qf_preds': [B, A]}."
        require(isinstance(module, QNetAPI), "module_class", type(module), fix)
        fix = "an own module cannot be recurrent yet. Use model_config={'use_lstm': True} of the default module."
        require(not module.is_stateful() and self.recurrence is None, "module_class", type(module), fix)
        whole = WholeCategoricalQNetwork if self._of_atoms else WholeQNetwork
        return whole(*given, nn.Identity(), 1, module=module, turned=self._turned, **common)

    def _features(self, module: Any) -> Any:
        encoder, dims, turned = module.encoder, tuple(module.catalog.latent_dims), self._turned
        if self.recurrence is None:
            return features_of(encoder, dims, turned)
        if not isinstance(encoder, RecurrentEncoder) or encoder.tokenizer is None:
            raise PolicyError("use_lstm=True needs a RecurrentEncoder with a tokenizer: see get_tokenizer_config().")
        tokens = tuple(encoder.config.tokenizer_config.output_dims)
        return RecurrentExtractor(features_of(encoder.tokenizer, tokens, turned), encoder.core, self.recurrence.burn_in)


class ExploresItself(BeforeAlgorithm):
    """Before an algorithm: its module explores, from the first step on, and nothing else does."""

    policy: Any

    def _exploration(self) -> dict[str, Any]:
        return {}

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """The policy's actions."""
        return NetworkAlgorithm.predict(self, *args, **kwargs)


class SquaredErrors:
    """Before a learner of DQN: its loss is the mean of squared errors."""

    def objective(self, batch: Any, q: Tensor, target: Tensor) -> Objective:
        """q [B, A] of every action, target [B] of those taken"""
        error = taken(q, batch.actions.long()) - target
        return Objective((batch.weights * error**2).mean(), td_error=error.detach().abs())


class ReadsOutputs(BeforeDQN):
    """Before a learner of DQN: what a module's ``forward_train`` returned takes the place of values that are computed.

    Attributes:
        outputs: of the rows that are learned from.
    """

    policy: Any
    outputs: dict[str, Tensor] = {}

    def predicted(self, batch: Any) -> Tensor:
        return self.outputs[QF_PREDS] if QF_PREDS in self.outputs else super().predicted(batch)

    def q_values(self, network: Any, observations: Any) -> Tensor:
        name = QF_TARGET_NEXT_PREDS if network is self.policy.q_net_target else QF_NEXT_PREDS
        return self.outputs[name] if name in self.outputs else super().q_values(network, observations)


class LossesOfModule(ReadsOutputs):
    """Before a learner of DQN: ``forward_train`` says what its losses are made of, values of this step and the next."""

    def gradient_step(self, batch: Any) -> Any:
        self.outputs = self.policy.said_of(batch)
        try:
            return super().gradient_step(batch)
        finally:
            self.outputs = {}  # a graph that could not be copied


class TargetsOfModule(BeforeDQN):
    """Before a learner of DQN: its module says which of its networks lag behind which, and they follow, too."""

    policy: Any
    tau: Any

    def update_target(self) -> None:
        super().update_target()
        for network, target in self.policy.rl_module.get_target_network_pairs():
            polyak_update(network, target, self.tau)
