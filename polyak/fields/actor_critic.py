"""Groups of fields of off-policy actor-critics.

An algorithm lists groups before its kind: ``class TD3(Smoothed, OffPolicyAlgorithm)``. Its own declarations override
them.
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
    """Fields of algorithms with soft target updates."""

    _: KW_ONLY
    tau: Fraction = 0.005
    """Update rate of the target networks, in [0, 1]; 1 copies."""


@dataclass(eq=False, repr=False)
class Noisy:
    """Fields of an actor that explores by action noise."""

    _: KW_ONLY
    action_noise: ActionNoise | None = None
    """Noise added to actions during collection, in units of the action space scaled to [-1, 1]."""
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Box,)


@dataclass(eq=False, repr=False)
class CriticFields(Soft):
    """Fields of an actor of continuous actions, and critics with target networks."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Box,)
    actor = Held("policy.actor")
    """The actor network."""
    critic = Held("policy.critic")
    """The critic networks."""
    critic_target = Held("policy.critic_target")
    """The target critics."""


@dataclass(eq=False, repr=False)
class Smoothed(CriticFields, Noisy):
    """Fields of TD3's actor and critics."""

    _: KW_ONLY
    policy_delay: Count = 2
    """Gradient steps of the critics per step of the actor and the targets."""
    target_policy_noise: NonNegative | None = 0.2
    """Standard deviation of the normal target policy smoothing noise; ``None``: noise is uniform in
    [-target_noise_clip, target_noise_clip]."""
    target_noise_clip: NonNegative = 0.5
    """Bound of the smoothing noise."""
    actor_target = Held("policy.actor_target")
    """The target network of the actor."""


@dataclass(eq=False, repr=False)
class Entropy:
    """Fields of an entropy bonus, whose weight may be learned."""

    _: KW_ONLY
    ent_coef: NonNegative | str = "auto"
    """Entropy temperature alpha: ``"auto"`` learns it from 1, ``"auto_0.1"`` learns it from 0.1, a number fixes it."""
    log_ent_coef = Held("learner.log_ent_coef")
    """The logarithm of the temperature, if it is learned: a parameter [1]."""


@dataclass(eq=False, repr=False)
class GaussianEntropy(Noisy, Entropy):
    """Fields of an entropy bonus for continuous actions, with state-dependent exploration."""

    _: KW_ONLY
    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy when alpha is learned; ``"auto"`` is minus the number of action dimensions."""
    learning_rates: PartRates | None = None
    """Learning rates of single parts that override ``learning_rate``: ``"actor"``, ``"critic"``, ``"ent_coef"``."""
    use_sde: WithNetworks[bool] = False
    """Explore with state-dependent noise (gSDE, arXiv:2005.05719) instead of independent Gaussian noise."""
    sde_sample_freq: int | Literal["episode"] = -1
    """Steps between two draws of gSDE's exploration matrix; -1 draws only at the start of a rollout; ``"episode"``
    draws one at the start of each episode."""
    use_sde_at_warmup: bool = False
    """Use gSDE instead of uniform random actions before ``learning_starts``."""


@dataclass(eq=False, repr=False)
class Spaced(Soft):
    """Fields of algorithms whose targets are updated every few gradient steps."""

    _: KW_ONLY
    target_update_interval: Count = 1
    """Gradient steps between two target updates."""


@dataclass(eq=False, repr=False)
class SoftCritics(CriticFields, Spaced, GaussianEntropy):
    """Fields of SAC's actor and critics."""
