"""Groups of fields that off-policy actor-critics share.

An algorithm names groups before its kind: ``class TD3(Smoothed, OffPolicyAlgorithm)``. What it declares itself counts.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from gymnasium import spaces

from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative
from polyak.hyperparameters.held import Held
from polyak.learning.part_rates import PartRates
from polyak.noise import ActionNoise


@dataclass(eq=False, repr=False)
class Soft:
    """Target networks that follow slowly."""

    _: KW_ONLY
    tau: Fraction = 0.005
    """Rate at which target networks follow, in [0, 1]; 1 copies."""


@dataclass(eq=False, repr=False)
class Noisy:
    """An actor that explores by noise in its actions."""

    _: KW_ONLY
    action_noise: ActionNoise | None = None
    """Noise added to the actions while collecting, in units of the action space scaled to [-1, 1]."""
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Box,)


@dataclass(eq=False, repr=False)
class CriticFields(Soft):
    """An actor of continuous actions, and critics with targets."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Box,)
    actor = Held("policy.actor")
    """The network that acts."""
    critic = Held("policy.critic")
    """The networks of action values."""
    critic_target = Held("policy.critic_target")
    """Their lagging copies."""


@dataclass(eq=False, repr=False)
class Smoothed(CriticFields, Noisy):
    """TD3's actor and critics."""

    _: KW_ONLY
    policy_delay: Count = 2
    """Critic steps per step of the actor and the targets."""
    target_policy_noise: NonNegative | None = 0.2
    """Standard deviation of the normal noise that smooths the target actions; ``None``: the noise is uniform in
    [-target_noise_clip, target_noise_clip]."""
    target_noise_clip: NonNegative = 0.5
    """Largest such noise."""
    actor_target = Held("policy.actor_target")
    """The lagging copy of the actor."""


@dataclass(eq=False, repr=False)
class Entropy:
    """A reward for entropy, whose weight may be learned."""

    _: KW_ONLY
    ent_coef: NonNegative | str = "auto"
    """Entropy temperature alpha: ``"auto"`` learns it from 1, ``"auto_0.1"`` learns it from 0.1, a number fixes it."""
    log_ent_coef = Held("learner.log_ent_coef")
    """The logarithm of the temperature, where it is learned: a parameter [1]."""


@dataclass(eq=False, repr=False)
class GaussianEntropy(Noisy, Entropy):
    """The same of continuous actions, with state-dependent exploration."""

    _: KW_ONLY
    target_entropy: float | Literal["auto"] = "auto"
    """Entropy to hold when alpha is learned; ``"auto"`` is minus the number of action dimensions."""
    learning_rates: PartRates | None = None
    """Learning rates of single parts that differ from ``learning_rate``: ``"actor"``, ``"critic"``, ``"ent_coef"``."""
    use_sde: WithNetworks[bool] = False
    """Explore with noise that depends on the state (gSDE, arXiv:2005.05719) instead of independent Gaussian noise."""
    sde_sample_freq: int | Literal["episode"] = -1
    """Steps between two draws of gSDE's exploration matrix; -1 draws only at the start of a rollout; ``"episode"``
    draws one for each episode, where it begins."""
    use_sde_at_warmup: bool = False
    """Use gSDE instead of uniform random actions before ``learning_starts``."""


@dataclass(eq=False, repr=False)
class Spaced(Soft):
    """Target networks that follow every few gradient steps."""

    _: KW_ONLY
    target_update_interval: Count = 1
    """Gradient steps between two target updates."""


@dataclass(eq=False, repr=False)
class SoftCritics(CriticFields, Spaced, GaussianEntropy):
    """SAC's actor and critics."""
