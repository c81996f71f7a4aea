"""PPO that requires action masks, under the name that it has in sb3-contrib.

Huang and Ontanon 2020, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms", arXiv:2006.14171.
"""

from dataclasses import dataclass
from typing import ClassVar

from gymnasium import spaces

from polyak.algorithm_info import Card
from polyak.algorithms.ppo import PPO
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.maskable import MaskableActorCriticPolicy


@dataclass(eq=False, repr=False)
class MaskablePPO(PPO):
    """PPO for environments with action masks (arXiv:2006.14171).

    :class:`polyak.PPO` supports masks, too; this one refuses to learn without them."""

    policies: ClassVar = policy_aliases(MaskableActorCriticPolicy)
    action_spaces: ClassVar = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        assert self.runner is not None
        if self._needs_masks and not self.runner.env.masked:
            raise ValueError(
                f"{type(self).__name__} needs masks, but the environment does not say which choices it allows. Give it "
                "a method action_masks(), wrap it in polyak.envs.ActionMasker, or learn with PPO."
            )

    @property
    def _needs_masks(self) -> bool:
        return True

    card: ClassVar[Card] = Card(
        idea="PPO that insists on masks of allowed choices",
        learns_from="its own rollouts",
        search=PPO.card.search,
        page="masks.md#maskableppo",
    )
