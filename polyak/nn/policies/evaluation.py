"""Critics of a given policy: fitted Q evaluation."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import Tensor

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import NatureCNN, Obs
from polyak.nn.networks.layers import check_widths
from polyak.nn.policies.base import LayeredPolicy, lagging
from polyak.nn.policies.categorical import DiscreteCritic
from polyak.nn.policies.continuous import ContinuousCritic


class EvaluationPolicy(LayeredPolicy):
    """K critics and a target copy of them, without an actor: it cannot act.

    The choices of the evaluated policy in B states are a tensor: for a Box, M actions each [B, M, A] in [-1, 1]; for a
    Discrete, the probabilities of its actions [B, A].

    Args:
        observation_space: space of the observations.
        action_space: a Box of finite bounds, or a Discrete.
        n_critics: K.
        **options: see :class:`~polyak.nn.policies.base.LayeredPolicy`. ``net_arch=None`` takes [256, 256], or for a
            Discrete none after :class:`~polyak.nn.NatureCNN`.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    targets = ("critic_target",)

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, *, n_critics: int = 1, **options: Any
    ) -> None:
        if not isinstance(action_space, spaces.Box | spaces.Discrete):
            raise PolicyError(f"these critics evaluate actions of a Box or a Discrete, not of {action_space}.")
        self.chooses, self.n_critics = isinstance(action_space, spaces.Discrete), n_critics
        super().__init__(observation_space, action_space, squash_output=not self.chooses, **options)
        self.net_arch = check_widths(self.net_arch, "net_arch")
        self.critic = self.make_critic()
        self.critic_target = lagging(self.make_critic(), self.critic).eval()

    def default_arch(self) -> list[int]:
        return [] if self.chooses and self.features_extractor_class is NatureCNN else [256, 256]

    def make_critic(self) -> DiscreteCritic | ContinuousCritic:
        """New critics, with their own features extractor."""
        if self.chooses:
            return self.new_network(DiscreteCritic, self.net_arch, n_critics=self.n_critics)
        options: dict[str, Any] = {"n_critics": self.n_critics, "share_features_extractor": False}
        return self.new_network(ContinuousCritic, self.net_arch, **options)

    def q_values(self, critic: Any, obs: Obs, actions: Tensor) -> Tensor:
        """The critics' values of actions [B, A], or choices [B] or [B, 1]: [K, B]"""
        if not self.chooses:
            return critic.q_values(obs, actions)
        values = critic.q_values(obs)
        return values.gather(2, actions.long().view(1, -1, 1).expand(len(values), -1, 1)).squeeze(2)

    def values(self, critic: Any, obs: Obs, choices: Tensor) -> Tensor:
        """The critics' mean values of B states over these choices: [K, B]"""
        if self.chooses:
            return (critic.q_values(obs) * choices).sum(2)
        return critic.q_values_of_many(obs, choices).mean(2)

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Raises an error: these networks have no actor.

        Raises:
            PolicyError: always.
        """
        raise PolicyError("these networks evaluate a policy and choose no actions. Ask the policy that they evaluate.")
