"""Asynchronous learning: actors continue with older weights while the learner learns, and V-trace corrects for that.

What happens when is in :mod:`polyak.loops.asynchronous`. With ``asynchronous=False`` actor and learner take turns, so
that equal seeds give equal numbers. An algorithm of the kind names the functions of this module.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

from polyak.distributed.separate_runners import SeparateRunners
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, Rate, require
from polyak.hyperparameters.held import Held
from polyak.kinds.network_algorithm import RELOAD
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.loops.asynchronous import AsynchronousLoop, RolloutCollector, log_lag
from polyak.loops.training import Loop
from polyak.nn.policies.base import Policy
from polyak.schedules import Schedule


@dataclass(eq=False, repr=False)
class AsynchronousAlgorithm(OnPolicyAlgorithm):
    """Those that learn from the rollouts of an actor that need not have the newest weights."""

    learning_rate: Rate | Schedule = 5e-4
    _: KW_ONLY
    n_steps: Count = 50
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
    asynchronous: bool = True
    """Act in a thread of its own while the learner learns; with ``n_runners``, take the rollouts of each as they come.
    ``False``: take turns, runners in their order, so that equal seeds give equal numbers."""
    queue_size: Count = 3
    """Rollouts that may wait for the learner, if it is ``asynchronous``; while there are so many, the actor waits, and
    no runner is asked for another."""
    broadcast_interval: Count = 1
    """Updates of the learner between two broadcasts of its weights to the actor."""

    built_with: ClassVar[Mapping[str, str]] = {
        name: RELOAD.format(name) for name in ("asynchronous", "queue_size", "n_steps")
    }
    loop: ClassVar[Callable[..., Loop]] = AsynchronousLoop
    watching: ClassVar[tuple[Callable[..., None], ...]] = (log_lag,)
    normalize_advantage: ClassVar[bool] = False  # type: ignore[misc]
    takes_all: ClassVar[bool] = False
    """Whether a lesson is wanted from all rollouts that wait, rather than from the oldest."""
    rollouts_per_batch: ClassVar[int] = 1
    """With ``n_runners``: of how many of their rollouts, side by side, a gradient step is made."""
    requests_per_runner: ClassVar[int] = 1
    """With ``n_runners``: how many rollouts one is asked for at a time, if it is ``asynchronous``."""
    # Not annotated: no hyper-parameters.
    collector = cast(RolloutCollector, None)
    """Brings rollouts: its loop makes it, and it outlives that."""
    _envs_of_a_rollout = cast(int, Held[int]("runner.rollout_envs"))
    _minibatches = cast(Any, Held("collector.minibatches"))


def check_asynchronous(model: Any) -> None:
    """Refuse what V-trace has no use for.

    Raises:
        HyperparameterError: a largest ratio in traces beyond ``rho_bar``, or a rollout buffer that wants values early.
    """
    fix = f"it must be at most rho_bar={model.rho_bar}."
    require(model.c_bar <= model.rho_bar, "c_bar", model.c_bar, fix)
    cls = model.rollout_buffer_class
    fix = "it has an add() or compute_returns_and_advantage() of its own, and V-trace reads neither."
    late = cls is None or cls.__new__(cls).values_may_follow  # as its methods say, not what it holds
    require(late, "rollout_buffer_class", cls, fix)


def _acting(model: Any) -> Any:
    return model.policy if model.runner is None else model.runner.actor.policy


acting_policy = cast(Policy, property(_acting))
"""Whose actions are taken: the actor's own copy, which may be read while the learner's is being compiled."""


def separate_runners(model: Any, actor: Any) -> SeparateRunners:
    """The runners of a model, each of which collects by itself."""
    waiting, requests = model.queue_size * model.rollouts_per_batch, model.requests_per_runner
    held = model.env, actor, model._progress, model._split, model._uses_masks
    return SeparateRunners(*held, not model.asynchronous, waiting, requests)


def expected_updates(model: Any, timesteps: int) -> tuple[int, int]:
    """Gradient steps that so many environment steps will bring, and the rows of each."""
    rows = model.n_steps * model._envs_of_an_actor * (model.rollouts_per_batch if model.n_runners else 1)
    return -(-timesteps // rows) * model._updates_per_rollout(rows), rows
