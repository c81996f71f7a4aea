"""Groups of fields of learners of action values. See :mod:`polyak.fields.actor_critic`."""

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
    """Fields of epsilon-greedy action selection."""

    _: KW_ONLY
    exploration_fraction: Fraction = 0.1
    """Fraction of training over which the exploration rate falls."""
    exploration_initial_eps: Fraction = 1.0
    """Probability of a random action at the start."""
    exploration_final_eps: Fraction = 0.05
    """Final probability of a random action."""
    max_grad_norm: NonNegative | None = 10
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""
    predict = Through("epsilon", Epsilon.predict)
    exploration_rate = Held[float]("epsilon.rate")
    """The present probability of a random action."""
    exploration_schedule = Held[Schedule]("epsilon.schedule")
    """The probability of a random action as a function of the remaining progress."""
    q_net = Held("policy.q_net")
    """The Q-network."""


@dataclass(eq=False, repr=False)
class GreedyOnPolicy(Greedy):
    """Fields of epsilon-greedy learning from fresh rollouts, without those of stochastic policies."""

    use_sde: Settled[bool] = False
    sde_sample_freq: Settled[int | Literal["episode"]] = -1
    ent_coef: Settled[float | Schedule] = 0.0
    entropy_index: Settled[float] = 1.0
    vf_coef: Settled[float] = 0.5
    normalize_advantage: Settled[bool] = False


@dataclass(eq=False, repr=False)
class CarefulTargets:
    """DQN's fields with defaults for learning from a dataset."""

    _: KW_ONLY
    double: bool = True
    """Double Q-learning: the online network chooses the next action, the target network evaluates it
    (arXiv:1509.06461)."""
    tau: Fraction = 0.005
    """Update rate of the target network at each of its updates, in [0, 1]; 1 copies."""
    target_update_interval: Count = 1
    """Gradient steps between two target updates; environment steps in online learning."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(1)
    """Steps to collect before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    exploration_initial_eps: Fraction = 0.05
    """Probability of a random action at the start of online learning, which follows offline training."""
