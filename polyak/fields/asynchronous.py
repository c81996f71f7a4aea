"""Asynchronous learning: actors continue with older weights while the learner learns, and V-trace corrects for that.

What happens when is in :mod:`polyak.loops.asynchronous`. With ``asynchronous=False`` actor and learner take turns, so
that equal seeds give equal numbers.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, cast

from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate, NonNegative, Positive
from polyak.hyperparameters.held import Held
from polyak.hyperparameters.settled import Settled
from polyak.loops.asynchronous import AsynchronousLoop, RolloutCollector
from polyak.loops.training import Loop
from polyak.nn.policies.base import Policy
from polyak.parts.asynchronous import OlderRollouts
from polyak.parts.part import MadeOf, Through
from polyak.schedules import Schedule


@dataclass(eq=False, repr=False)
class AsynchronousAlgorithm(OnPolicyAlgorithm):
    """Those that learn from the rollouts of an actor that need not have the newest weights."""

    learning_rate: LearningRate = 5e-4
    _: KW_ONLY
    n_steps: Reload[Count] = 50
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 1.0
    """Trace decay lambda of V-trace, in [0, 1] (remark 2 of its paper)."""
    rho_bar: Positive = 1.0
    """Largest ratio of probabilities in a temporal difference: which policy's values are learned."""
    c_bar: Positive = 1.0
    """Largest ratio in a trace, at most ``rho_bar``: how fast they are learned."""
    pg_rho_bar: Positive = 1.0
    """Largest ratio in the policy gradient."""
    ent_coef: NonNegative | Schedule = 0.01
    """Weight of the entropy bonus: a number, or a function of the remaining progress."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    max_grad_norm: NonNegative | None = 40.0
    """Largest global norm of the gradient, beyond which it is scaled down; ``None`` never does."""
    asynchronous: Reload[bool] = True
    """Act in a thread of its own while the learner learns; with ``n_runners``, take the rollouts of each as they come.
    ``False``: take turns, runners in their order, so that equal seeds give equal numbers."""
    queue_size: Reload[Count] = 3
    """Rollouts that may wait for the learner, if it is ``asynchronous``; while there are so many, the actor waits, and
    no runner is asked for another."""
    broadcast_interval: Count = 1
    """Updates of the learner between two broadcasts of its weights to the actor."""

    loop: ClassVar[Callable[..., Loop]] = AsynchronousLoop
    made_of: ClassVar[MadeOf] = {"rollouts": OlderRollouts}
    normalize_advantage: Settled[bool] = False
    # Not annotated: no hyper-parameters.
    collector = cast(RolloutCollector, None)
    """Brings rollouts: its loop makes it, and it outlives that."""
    _acting_policy = cast(Policy, Held[Policy]("rollouts.acting_policy"))
    _make_group = Through("rollouts", OlderRollouts.make_group)
