"""Dropout Q-functions (DroQ).

Hiraoka, Imagawa, Hashimoto, Onishi and Tsuruoka 2022, "Dropout Q-Functions for Doubly Efficient Reinforcement
Learning", arXiv:2110.02034. REDQ with two critics instead of ten: dropout turns each of them into an ensemble, and
layer normalisation stabilises it. The gradient steps are those of REDQ.

Shapes: B batch rows.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

from torch import nn

from polyak.algorithm_info import Card, tune
from polyak.algorithms.redq import ManyUpdates
from polyak.algorithms.sac import SAC
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, Only
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.layers import Activation, create_mlp
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy
from polyak.parts.part import MadeOf, of_policy

# -- critics -----------------------------------------------------------------------------------------------------------


def q_network(inputs: int, net_arch: Sequence[int], activation_fn: Activation, dropout_rate: float) -> nn.Sequential:
    """Returns a perceptron [B, inputs] -> [B, 1] whose hidden layers are linear, dropout, layer normalisation and
    activation, in this order, section 3."""

    def dropout(width: int) -> nn.Module:
        return nn.Dropout(dropout_rate)

    return nn.Sequential(*create_mlp(inputs, 1, net_arch, activation_fn, post_linear_modules=(dropout, nn.LayerNorm)))


class DropoutCritic(ContinuousCritic):
    """K Q-functions with dropout during training, in their target networks, too.

    Dropout applies to all values of algorithm 2: targets, predictions, and the actor's objective. In evaluation mode
    there is no dropout.

    Args:
        *args: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.
        dropout_rate: dropout probability of a hidden unit, in [0, 1).
        **kwargs: as ``args``.
    """

    target_switches: ClassVar[bool] = True

    def __init__(self, *args: Any, dropout_rate: float = 0.01, **kwargs: Any) -> None:
        self.dropout_rate = dropout_rate  # before the networks, which depend on it
        super().__init__(*args, **kwargs)

    def make_q_network(self, inputs: int) -> nn.Module:
        """Returns one of the K perceptrons on concatenated features and actions: [B, inputs] -> [B, 1]."""
        return q_network(inputs, self.net_arch, self.activation_fn, self.dropout_rate)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DroQ(ManyUpdates, SAC):
    """Dropout Q-functions: two critics with dropout and layer normalisation, and many updates (arXiv:2110.02034)."""

    _: KW_ONLY
    n_critics: WithNetworks[Count] = 2
    """Number of critics."""
    dropout_rate: WithNetworks[Annotated[float, Only("a number in [0, 1)", lambda p: 0 <= p < 1)]] = 0.01
    """Dropout probability of a critic's hidden units. The authors use 0.0001 to 0.1, higher for more complex bodies."""

    made_of: ClassVar[MadeOf] = {"network": of_policy("n_critics", "dropout_rate")}
    policies: ClassVar = policy_aliases(
        ContinuousPolicy, actor="squashed_gaussian", critic=DropoutCritic, net_arch=[256, 256]
    )

    card: ClassVar[Card] = Card(
        idea="REDQ with two critics, with dropout and layer normalisation",
        learns_from="replay",
        search=tune.actor_critic(tune.log_uniform("dropout_rate", 1e-3, 0.1), how_often=tune.many_updates()),
    )
