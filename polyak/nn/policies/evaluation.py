"""Critics of a given policy: fitted Q evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, NatureCNN, Obs
from polyak.nn.networks.layers import Activation, check_widths
from polyak.nn.policies.base import Policy
from polyak.nn.policies.categorical import DiscreteCritic
from polyak.nn.policies.continuous import ContinuousCritic


class EvaluationPolicy(Policy):
    """K critics and a target copy of them, without an actor: it cannot act.

    The choices of the evaluated policy in B states are a tensor: for a Box, M actions each [B, M, A] in [-1, 1]; for a
    Discrete, the probabilities of its actions [B, A].

    Args:
        observation_space: what it reads.
        action_space: a Box of finite bounds, or a Discrete.
        net_arch: widths of the hidden layers; ``None`` takes [256, 256], or for a Discrete none after
            :class:`~polyak.nn.NatureCNN`.
        activation_fn: follows every hidden layer.
        n_critics: K.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    targets = ("critic_target",)

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        net_arch: Sequence[int] | None = None,
        activation_fn: Activation = nn.ReLU,
        n_critics: int = 1,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
    ) -> None:
        if not isinstance(action_space, spaces.Box | spaces.Discrete):
            raise PolicyError(f"these critics evaluate actions of a Box or a Discrete, not of {action_space}.")
        self.chooses = isinstance(action_space, spaces.Discrete)
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
            squash_output=not self.chooses,
        )
        if net_arch is None:
            net_arch = [] if self.chooses and self.features_extractor_class is NatureCNN else [256, 256]
        self.net_arch = check_widths(net_arch, "net_arch")
        self.activation_fn, self.n_critics = activation_fn, n_critics
        self.critic = self.make_critic()
        self.critic_target = self.make_critic()
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.critic_target.requires_grad_(False).eval()

    def make_critic(self) -> DiscreteCritic | ContinuousCritic:
        """New critics, with their own features extractor."""
        options: dict[str, Any] = {"net_arch": self.net_arch, "activation_fn": self.activation_fn}
        options |= {"n_critics": self.n_critics, **self.network_arguments()}
        return (
            DiscreteCritic(**options) if self.chooses else ContinuousCritic(**options, share_features_extractor=False)
        )

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
        """Not supported: these networks have no actor.

        Raises:
            PolicyError: always.
        """
        raise PolicyError("these networks evaluate a policy and choose no actions. Ask the policy that they evaluate.")
