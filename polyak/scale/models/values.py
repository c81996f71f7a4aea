"""Policies that act greedily by the action values of a module: what DQN trains.

Shapes: B rows, A actions, K atoms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.core.hyperparameters import require
from polyak.nn.errors import PolicyError
from polyak.nn.fast.acting import Chain
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.networks.streams import Dueling
from polyak.nn.policies.base import n_rows
from polyak.nn.policies.value import CategoricalQNetwork, QNetwork, ValuePolicy
from polyak.scale.columns import QF_LOGITS, QF_PREDS, Columns
from polyak.scale.models.default_modules import DefaultDQNTorchRLModule
from polyak.scale.models.encoders import RecurrentEncoder
from polyak.scale.models.parts import Built, EncoderFeatures, can_be_taken_apart, check_output, features_of, layers_of
from polyak.scale.models.rl_module import QNetAPI


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
        turned: see :class:`Built`.
        options: those of :class:`~polyak.nn.policies.value.QNetwork`.
    """

    def __init__(self, *args: Any, module: Any, turned: bool = False, **options: Any) -> None:
        self._module, self._turned = (module,), turned
        super().__init__(*args, **options)

    def _build_layers(self, n_actions: int) -> None:
        self.module = self._module[0]

    def _outputs(self, obs: Any) -> dict[str, Tensor]:
        read: Any = self.preprocess(obs)
        values: dict[str, Tensor] = self.module.compute_q_values(
            {Columns.OBS: read.movedim(1, -1) if self._turned else read}
        )
        self._check(values, n_rows(read))
        return values

    def _check(self, values: dict[str, Tensor], rows: int) -> None:
        """That what the module says has the shape of as many rows and actions."""
        self._check_one(values, QF_PREDS, (rows, int(self.action_space.n)))  # type: ignore[attr-defined]

    def _check_one(self, values: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
        check_output(self.module, f"compute_q_values(), {name!r}", values.get(name), shape)

    def forward(self, obs: Obs) -> Tensor:
        return self._outputs(obs)[QF_PREDS]

    def chain(self, policy: Any) -> Chain | None:
        return None


class WholeCategoricalQNetwork(WholeQNetwork, CategoricalQNetwork):
    """Distributions of returns of a module with a forward pass of its own."""

    def _build_layers(self, n_actions: int) -> None:
        self.module = self._module[0]

    def logits(self, obs: Obs) -> Tensor:
        """[B, K, A]"""
        return self._outputs(obs)[QF_LOGITS].transpose(-1, -2)

    def _check(self, values: dict[str, Tensor], rows: int) -> None:
        self._check_one(values, QF_LOGITS, (rows, int(self.action_space.n), len(self.support)))  # type: ignore[attr-defined]

    def forward(self, obs: Obs) -> Tensor:
        return self.mean(self.logits(obs))


class ModuleValuePolicy(ValuePolicy):
    """Acts greedily by the action values of a module, and keeps a lagging copy of it.

    Args:
        observation_space: what it reads.
        action_space: a Discrete.
        module_class: see :class:`Built`.
        catalog_class: see :class:`Built`.
        model_config: see :class:`Built`.
        turned: see :class:`Built`.
        n_atoms: atoms of distributions of returns; ``None``: values alone.
        v_min, v_max: the first and the last of them.
        dueling: the module has a head of state values, too.
        sigma0: of noisy heads; ``None``: they are not.
        options: ``memory`` and what belongs to it: see :class:`~polyak.nn.policies.value.GreedyPolicy`.

    Attributes:
        rl_module: the module that learns.
    """

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
        self._build = Built(module_class, catalog_class, {**(model_config or {}), **decided}, turned)
        self._made: list[Any] = []
        self._of_atoms = {} if n_atoms is None else {"n_atoms": n_atoms, "v_min": v_min, "v_max": v_max}
        super().__init__(
            observation_space, action_space, features_extractor_class=EncoderFeatures, net_arch=[], **options
        )

    @property
    def rl_module(self) -> Any:
        """The module that learns."""
        return self._made[0]

    def _build_networks(self) -> None:
        super()._build_networks()
        module, target = self._made
        if hasattr(module, "adopt_target"):
            module.adopt_target(target)

    def make_q_net(self) -> QNetwork:
        module = self._build(self.observation_space, self.action_space)
        self._made.append(module)
        apart = can_be_taken_apart(module, DefaultDQNTorchRLModule, ("compute_q_values",))
        common: dict[str, Any] = {"normalize_images": self.normalize_images, "net_arch": [], **self._of_atoms}
        given = (self.observation_space, self.action_space)
        if apart:
            features = self._features(module)
            kind = ModuleCategoricalQNetwork if self._of_atoms else ModuleQNetwork
            return kind(*given, features, features.features_dim, module=module, **common)
        fix = "DQN learns action values: write compute_q_values(self, batch), which returns {'qf_preds': [B, A]}."
        require(isinstance(module, QNetAPI), "module_class", type(module), fix)
        fix = "a module of one's own cannot remember yet. Use model_config={'use_lstm': True} of the default module."
        require(not module.is_stateful() and self.recurrence is None, "module_class", type(module), fix)
        whole = WholeCategoricalQNetwork if self._of_atoms else WholeQNetwork
        return whole(*given, nn.Identity(), 1, module=module, turned=self._build.turned, **common)

    def _features(self, module: Any) -> Any:
        encoder, dims, turned = module.encoder, tuple(module.catalog.latent_dims), self._build.turned
        if self.recurrence is None:
            return features_of(encoder, dims, turned)
        if not isinstance(encoder, RecurrentEncoder) or encoder.tokenizer is None:
            raise PolicyError("use_lstm=True needs a RecurrentEncoder with a tokenizer: see get_tokenizer_config().")
        tokens = tuple(encoder.config.tokenizer_config.output_dims)
        return RecurrentExtractor(features_of(encoder.tokenizer, tokens, turned), encoder.core, self.recurrence.burn_in)
