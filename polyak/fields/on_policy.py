"""On-policy learning: collect a rollout, estimate advantages, make a few passes over it, discard it."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, cast

from polyak.experience import RolloutBuffer
from polyak.fields.processes import WithRunners
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive
from polyak.hyperparameters.held import Held
from polyak.loops.on_policy import OnPolicyLoop
from polyak.loops.training import Loop
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.choice import ACTION_SPACES
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Policy
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy
from polyak.parts.part import MadeOf, Through
from polyak.parts.rollouts import Rollouts
from polyak.schedules import Schedule


@dataclass(eq=False, repr=False)
class OnPolicyAlgorithm(WithRunners, NetworkAlgorithm):
    """Base class of algorithms that learn from fresh rollouts of their own policy."""

    _: KW_ONLY
    n_steps: Count = 2048
    """Steps per environment in one rollout."""
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    gae_lambda: Fraction = 0.95
    """Trace decay of generalised advantage estimation, in [0, 1]: 0 is one-step TD, 1 Monte Carlo."""
    rollout_buffer_class: type[RolloutBuffer] | None = None
    """A class to use instead of :class:`~polyak.experience.RolloutBuffer`."""
    rollout_buffer_kwargs: dict[str, Any] | None = None
    """Further arguments of the rollout buffer."""
    use_sde: WithNetworks[bool] = False
    """Explore with state-dependent noise (gSDE, arXiv:2005.05719) instead of independent Gaussian noise."""
    sde_sample_freq: int | Literal["episode"] = -1
    """Steps between two draws of gSDE's exploration matrix; -1 draws only at the start of a rollout; ``"episode"``
    draws one at the start of each episode."""
    ent_coef: NonNegative | Schedule = 0.0
    """Weight of the entropy bonus: a number, or a function of the remaining progress."""
    entropy_index: Positive = 1.0
    """Index q of the Tsallis entropy in the bonus (arXiv:1902.00137): 1 is Shannon's; 2 favours sparse policies,
    exactly sparse with ``policy_kwargs={"sparse": True}``."""
    max_grad_norm: NonNegative | None = 0.5
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and standard deviation 1 within each minibatch."""

    supports_masks: ClassVar[bool] = True
    made_of: ClassVar[MadeOf] = {"rollouts": Rollouts}
    policies: ClassVar[Mapping[str, Callable[..., Policy]]] = policy_aliases(
        ActorCriticPolicy, RecurrentActorCriticPolicy
    )
    action_spaces: ClassVar = ACTION_SPACES
    loop: ClassVar[Callable[..., Loop]] = OnPolicyLoop.of
    rollouts = cast(Rollouts, None)  # a part, no hyper-parameter
    batch_size = cast(int, None)
    """Rows of a minibatch, if a subclass has it as a hyper-parameter; otherwise a whole rollout."""
    rollout_buffer = Held[RolloutBuffer]("rollouts.buffer")
    """The rollout buffer."""
    train = Through("rollouts", Rollouts.train)
