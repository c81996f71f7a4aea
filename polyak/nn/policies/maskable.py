"""The policy of MaskablePPO: a bit of a MultiBinary is a choice between two classes."""

from gymnasium import spaces

from polyak.nn.distributions.discrete import MultiCategoricalFamily
from polyak.nn.policies.actor_critic import ActorCriticPolicy


class MaskableActorCriticPolicy(ActorCriticPolicy):
    """An :class:`~polyak.nn.ActorCriticPolicy` with two outputs for each bit of a MultiBinary, one for each value, as
    masks have two entries.

    The distributions are the same; the weights are those of sb3-contrib's policy of that name.
    """

    def _build_networks(self) -> None:
        if isinstance(self.action_space, spaces.MultiBinary):
            self.action_family = MultiCategoricalFamily((2,) * int(self.action_space.shape[0]))
        super()._build_networks()
