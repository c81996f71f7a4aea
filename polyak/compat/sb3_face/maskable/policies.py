"""sb3-contrib's policies of MaskablePPO: each method that returns actions also takes masks.

Shape letters: B batch, M entries of a mask.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from polyak.arrays import Flags, Memory, Predicted
from polyak.compat.sb3_face.maskable.distributions import MaskableDistribution, Masks, make_masked_proba_distribution
from polyak.compat.sb3_face.policies import SHARING, ActorCriticPolicy, reads_by
from polyak.compat.sb3_face.signatures import takes
from polyak.nn.networks.encoders import CombinedExtractor, NatureCNN, Obs
from polyak.nn.plain import plain
from polyak.nn.policies import maskable
from polyak.nn.policies.base import Decision, Noise, NumpyObs


@takes(f"lr_schedule net_arch activation_fn ortho_init {SHARING}")
class MaskableActorCriticPolicy(maskable.MaskableActorCriticPolicy, ActorCriticPolicy):
    """See :class:`polyak.compat.sb3_face.policies.ActorCriticPolicy`; for Discrete, MultiDiscrete and MultiBinary
    actions.

    ``action_masks`` are [B, M] throughout, see :mod:`polyak.envs.masks`; ``None`` allows everything.
    """

    action_dist: MaskableDistribution

    def _make_distribution(self) -> MaskableDistribution:
        return make_masked_proba_distribution(self.action_space)

    @plain
    def forward(
        self, obs: Obs, deterministic: bool = False, action_masks: Masks = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns actions [B, ...], state values [B, 1], log-densities of the actions [B]."""
        latent_pi, latent_vf = self._latents(obs)
        distribution = self._limited(self._get_action_dist_from_latent(latent_pi), action_masks)
        actions = distribution.get_actions(deterministic)
        return self._shaped(actions), self.value_net(latent_vf), distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, action_masks: Masks = None, entropy_index: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """See :meth:`polyak.nn.ActorCriticPolicy.evaluate_actions`."""
        return super().evaluate_actions(obs, actions, action_masks, entropy_index)  # type: ignore[arg-type]

    @plain
    def get_distribution(self, obs: Obs, action_masks: Masks = None) -> MaskableDistribution:  # type: ignore[override]
        """Returns ``action_dist`` with the parameters for observations [B, ...]; valid until the next call."""
        return self._limited(super().get_distribution(obs), action_masks)

    @staticmethod
    def _limited(distribution: Any, action_masks: Masks) -> MaskableDistribution:
        if action_masks is not None:
            distribution.apply_masking(action_masks)
        return distribution

    def _decide_among(self, masks: Tensor | None, obs: Obs, noise: Noise | None) -> Decision:
        assert masks is not None  # this class draws its own noise, so none is given here
        deterministic = noise is None
        if not self.acts_by_forward:
            return Decision(self._predict(obs, deterministic, masks))
        allowed = masks.numpy(force=True)
        actions, values, log_probs = self(obs, deterministic=deterministic, action_masks=allowed)
        return Decision(actions, {"values": values.flatten(), "log_probs": log_probs})

    def _predict(self, observation: Obs, deterministic: bool = False, action_masks: Masks = None) -> Tensor:
        distribution = self.get_distribution(observation, action_masks)
        return self._shaped(distribution.get_actions(deterministic=deterministic))

    def predict(
        self,
        observation: NumpyObs,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        action_masks: Flags = None,
    ) -> Predicted:
        """See :meth:`polyak.nn.Policy.predict`."""
        return super().predict(observation, state, episode_start, deterministic, action_masks=action_masks)


@reads_by(NatureCNN)
class MaskableActorCriticCnnPolicy(MaskableActorCriticPolicy):
    """:class:`MaskableActorCriticPolicy` for images."""


@reads_by(CombinedExtractor)
class MaskableMultiInputActorCriticPolicy(MaskableActorCriticPolicy):
    """:class:`MaskableActorCriticPolicy` for Dict observations."""
