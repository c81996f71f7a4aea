"""Asynchronous learning: actors continue with older weights during learning, and V-trace corrects for the policy lag.

The loop is in :mod:`polyak.loops.asynchronous`. With ``asynchronous=False`` actor and learner alternate, so that equal
seeds give equal results.
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
    """Base class of algorithms that learn from rollouts of an actor whose weights may lag behind."""

    learning_rate: LearningRate = 5e-4
    _: KW_ONLY
    n_steps: Reload[Count] = 50
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 1.0
    """Trace decay lambda of V-trace, in [0, 1] (remark 2 of its paper)."""
    rho_bar: Positive = 1.0
    """Clipping of the ratio of probabilities in temporal differences: determines whose values are learned."""
    c_bar: Positive = 1.0
    """Clipping of the ratio in traces, at most ``rho_bar``: determines how fast values are learned."""
    pg_rho_bar: Positive = 1.0
    """Clipping of the ratio in the policy gradient."""
    ent_coef: NonNegative | Schedule = 0.01
    """Weight of the entropy bonus: a number, or a function of the remaining progress."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    max_grad_norm: NonNegative | None = 40.0
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""
    asynchronous: Reload[bool] = True
    """Act in a separate thread during learning; with ``n_runners``, take the rollouts of each runner as they arrive.
    ``False``: alternate, with runners in their order, so that equal seeds give equal results."""
    queue_size: Reload[Count] = 3
    """Rollouts that may wait for the learner, if it is ``asynchronous``; when the queue is full, the actor waits, and
    runners get no new requests."""
    broadcast_interval: Count = 1
    """Updates of the learner between two broadcasts of its weights to the actor."""

    loop: ClassVar[Callable[..., Loop]] = AsynchronousLoop
    made_of: ClassVar[MadeOf] = {"rollouts": OlderRollouts}
    normalize_advantage: Settled[bool] = False
    # Without annotations, since these are no hyper-parameters.
    collector = cast(RolloutCollector, None)
    """The rollout collector, created by the loop; it outlives one ``learn``."""
    _acting_policy = cast(Policy, Held[Policy]("rollouts.acting_policy"))
    _make_group = Through("rollouts", OlderRollouts.make_group)
