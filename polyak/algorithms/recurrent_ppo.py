"""PPO with a recurrent policy, under the name that it has in sb3-contrib.

Schulman et al. 2017, arXiv:1707.06347; Pleines et al. 2022, "Generalization, Mayhems and Limits in Recurrent Proximal
Policy Optimization", arXiv:2205.11104.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.ppo import PPO
from polyak.hyperparameters.declaration import Count
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy

_RECIPES = policy_aliases(RecurrentActorCriticPolicy, RecurrentActorCriticPolicy, memory="lstm", max_seq_len=None)


@dataclass(eq=False, repr=False)
class RecurrentPPO(PPO):
    """PPO with recurrent state, by an LSTM or by a GRU with ``policy_kwargs={"memory": "gru"}`` (arXiv:1707.06347).

    :class:`polyak.PPO` with ``policy_kwargs={"memory": "lstm"}`` is the same with other defaults: here gradients are
    backpropagated through sequences as long as a minibatch, there through 32 steps, which is faster.

    :class:`polyak.PPO` with ``policy_kwargs={"memory": "lstm"}`` is the same under other defaults: here gradients go
    back through sequences as long as a minibatch, there through 32 steps, which is quicker.
    """

    _: KW_ONLY
    n_steps: Count = 128
    """Steps per environment in one rollout."""
    batch_size: Count = 128
    """Rows of the rollout per minibatch."""

    policies: ClassVar = _RECIPES | {name.replace("Policy", "LstmPolicy"): r for name, r in _RECIPES.items()}

    card: ClassVar[Card] = Card(
        idea="PPO with an LSTM or a GRU, for tasks that one observation does not show",
        learns_from="its own rollouts",
        reference="arXiv:2205.11104",
        search=Search(
            tune.of_policy(tune.power_of_two("memory_size", 32, 256)),
            tune.of_policy(tune.choice("critic_memory", ["own", "shared", "none"])),
            tune.clipped_steps(),
        ),
    )
