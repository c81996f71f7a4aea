"""Groups of fields that learners of action values share. See :mod:`polyak.fields.actor_critic`."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from polyak.collecting.train_freq import TrainFreq
from polyak.hyperparameters.declaration import Becomes, Count, Fraction, NonNegative, later
from polyak.hyperparameters.held import Held
from polyak.hyperparameters.settled import Settled
from polyak.parts.epsilon import Epsilon
from polyak.parts.part import Through
from polyak.schedules import Schedule


@dataclass(eq=False, repr=False)
class Greedy:
    """Acts by the largest value, and at random now and then."""

    _: KW_ONLY
    exploration_fraction: Fraction = 0.1
    """Fraction of training over which the exploration rate falls."""
    exploration_initial_eps: Fraction = 1.0
    """Probability of a random action at the start."""
    exploration_final_eps: Fraction = 0.05
    """Probability of a random action once it has fallen."""
    max_grad_norm: NonNegative | None = 10
    """Largest global norm of the gradient, beyond which it is scaled down; ``None`` never does."""
    predict = Through("epsilon", Epsilon.predict)
    exploration_rate = Held[float]("epsilon.rate")
    """Probability of a random action at this moment."""
    exploration_schedule = Held[Schedule]("epsilon.schedule")
    """The same as a function of the remaining progress."""
    q_net = Held("policy.q_net")
    """The network of action values."""


@dataclass(eq=False, repr=False)
class GreedyOnPolicy(Greedy):
    """The same on fresh rollouts, without what stochastic policies have."""

    use_sde: Settled[bool] = False
    sde_sample_freq: Settled[int | Literal["episode"]] = -1
    ent_coef: Settled[float | Schedule] = 0.0
    entropy_index: Settled[float] = 1.0
    vf_coef: Settled[float] = 0.5
    normalize_advantage: Settled[bool] = False


@dataclass(eq=False, repr=False)
class CarefulTargets:
    """DQN's fields as they are best where it learns from a dataset."""

    _: KW_ONLY
    double: bool = True
    """Double Q-learning: the online network chooses the next action whose value by the target network counts
    (arXiv:1509.06461)."""
    tau: Fraction = 0.005
    """Rate at which the target network follows at each of its updates, in [0, 1]; 1 copies."""
    target_update_interval: Count = 1
    """Gradient steps between two target updates; environment steps where it learns by acting."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(1)
    """Collect this long before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    exploration_initial_eps: Fraction = 0.05
    """Probability of a random action at the start of learning by acting: a model that has learned from data acts well
    already."""
