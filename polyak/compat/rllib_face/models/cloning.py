"""What BC and MARWIL train of a module: its action distribution, and of MARWIL its state values.

Shapes: B rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.rllib_face.columns import ENCODER_OUT, Columns
from polyak.compat.rllib_face.models.actor_critics import WholeModulePolicy
from polyak.compat.rllib_face.models.catalog import Catalog, PPOCatalog
from polyak.compat.rllib_face.models.rl_module import Batch, TorchRLModule, as_images
from polyak.hyperparameters.declaration import require
from polyak.nn.networks.encoders import Obs


class BCCatalog(Catalog):
    """Encoder and policy head of an actor.

    Attributes:
        pi_head_hiddens, pi_head_activation: of the hidden layers of the head.
    """

    def __init__(self, *spaces: Any, **options: Any) -> None:
        super().__init__(*spaces, **options)
        self.pi_head_hiddens: Any = self._model_config_dict["head_fcnet_hiddens"]
        self.pi_head_activation: Any = self._model_config_dict["head_fcnet_activation"]

    pi_head_config: Any = vars(PPOCatalog)["pi_head_config"]

    def _hidden(self) -> tuple[Any, Any]:
        return self.pi_head_hiddens, self.pi_head_activation

    def build_pi_head(self, framework: str = "torch") -> Any:
        """A new policy head."""
        return self.pi_head_config.build(framework)


class DefaultBCTorchRLModule(TorchRLModule):
    """An encoder and a policy head, from a :class:`BCCatalog`."""

    default_catalog: ClassVar[Any] = BCCatalog

    def setup(self) -> None:
        catalog: Any = self.catalog
        self._encoder = catalog.build_encoder(framework="torch")
        self._pi_head = catalog.build_pi_head(framework="torch")

    def get_initial_state(self) -> dict[str, Any]:
        find = getattr(self._encoder, "get_initial_state", None)
        return {} if find is None else find()

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        encoded = self._encoder(as_images(batch))
        return {Columns.ACTION_DIST_INPUTS: self._pi_head(encoded[ENCODER_OUT])}


class CloningModulePolicy(WholeModulePolicy):
    """A module as :class:`~polyak.algorithms.bc.BC` trains it, which is called whole.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        stochastic: its distribution is learned by the likelihood of recorded actions, and acted by: always.
        options: those of :class:`~polyak.compat.rllib_face.models.actor_critics.WholeModulePolicy`.

    Raises:
        PolicyError: a recurrent module.
    """

    needs_values = False

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, *, stochastic: bool = True, **options: Any
    ) -> None:
        require(stochastic, "stochastic", stochastic, "a module has a distribution of actions. Leave it out.")
        super().__init__(observation_space, action_space, **options)
        self.stochastic = True

    @property
    def actor(self) -> nn.Module:
        """The module."""
        found: nn.Module = self.module
        return found

    def forward(self, obs: Obs, deterministic: bool = False) -> Any:
        """Actions [B, ...]"""
        return self.act(obs, deterministic)


class ValuedCloningModulePolicy(CloningModulePolicy):
    """A module as :class:`~polyak.algorithms.marwil.MARWIL` trains it, with state values."""

    needs_values = True

    def value(self, obs: Obs) -> Tensor:
        """State values [B]."""
        return self.predict_values(obs).flatten()
