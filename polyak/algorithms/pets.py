"""Probabilistic Ensembles with Trajectory Sampling (PETS): planning with a learned model of the environment.

Chua et al. 2018, "Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models",
arXiv:1805.12114, algorithm 1.

Differences from the paper: members share their data instead of bootstrapping it, and are fitted until a holdout set
stops them; rewards and terminations are learned unless functions give them; outputs of the model are standardised.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from gymnasium import spaces

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.model_based.fitting import FitsModel, ModelLearner, model_optimizer, rows_of
from polyak.algorithms.model_based.planning import PlanningPolicy, Propagation
from polyak.experience.base_buffer import Normalizer
from polyak.experience.schema import Column
from polyak.experience.step import Step
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    LearningRate,
    Natural,
    later,
    require,
)
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, OptimizerRecipe
from polyak.loops.updates import record_means
from polyak.parts.part import MadeOf, of_policy
from polyak.parts.replay import ExperienceReplay


def without_plans(model: Any, step: Step) -> Step:
    """Removes the plans, which are not stored, from a step of [N] environments."""
    return step._replace(extras={})


class Fits:
    """Fits a model to all experience.

    Args:
        model: the algorithm.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.memory, self.clock, self.split = model, model.memory, model.clock, model._split
        self.follow = model._following()

    def make(self, steps: int, rows: int, gamma: float, share: float | None, normalizer: Normalizer | None) -> None:
        """Fit the model by at most ``steps`` gradient steps, with ``rows`` rows per minibatch of each member."""
        model, memory = self.model, self.memory
        with self.split.sample:
            found = rows_of((memory.own, memory.recorded), model.device, normalizer)
        if len(found.rewards) < 2:
            return
        model.policy.set_training_mode(True)
        self.follow()
        fit = model.learner.fit(found, steps, rows)
        self.clock.updates += fit.steps
        model.logger.record("train/n_updates", self.clock.updates, exclude="tensorboard")
        record_means(fit.metrics, model.logger, model.host)


class Fitted(ExperienceReplay):
    """Stores steps without plans, and fits the model to all experience."""

    few_updates: ClassVar = True
    storing: ClassVar = (without_plans,)
    numpy_alone: ClassVar = "a model is fitted to rows in main memory"

    def updates(self) -> Fits:
        return Fits(self.model)


PLANNED = (
    *("horizon", "n_candidates", "n_top", "n_iterations", "momentum", "n_particles", "propagation", "gamma"),
    *("reward_function", "termination_function"),
)
"""Hyper-parameters that are passed to the policy."""


@dataclass(eq=False, repr=False)
class PETS(FitsModel, OffPolicyAlgorithm):
    """Planning by the cross-entropy method on a learned probabilistic ensemble of models (arXiv:1805.12114).

    The policy is the model and the planner; ``policy_kwargs`` are arguments of the model (``n_members``, ``n_elites``,
    ``net_arch``, ``activation_fn``: see :class:`~polyak.algorithms.model_based.dynamics.DynamicsModel`) and of its
    optimizer. Observations are a Box of real numbers.
    """

    learning_rate: LearningRate = 1e-3
    """Learning rate of the model: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    learning_starts: Natural = 200
    """Environment steps of random actions before the first fit."""
    gamma: Reload[Fraction] = 1.0
    """Discount of one step within a plan, in [0, 1]."""
    train_freq: Becomes[int | tuple[int, str], Any] = later(200)
    """Steps to collect before each fit: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    gradient_steps: Count = 2_000
    """Largest number of gradient steps of one fit."""
    horizon: Reload[Count] = 25
    """Steps of a plan."""
    n_candidates: Reload[Count] = 400
    """Candidate plans per iteration."""
    n_top: Reload[Count] = 40
    """Number of best candidates, whose mean and variance the next iteration uses."""
    n_iterations: Reload[Count] = 5
    """Iterations of the cross-entropy method for each action."""
    momentum: Reload[Fraction] = 0.1
    """Weight of the candidates' previous mean and variance, against those of the best ones."""
    n_particles: Reload[Count] = 20
    """Trajectories imagined for each plan, whose returns are averaged: a multiple of the model's elites."""
    propagation: Reload[Propagation] = "tsinf"
    """``"ts1"``: a trajectory changes its member of the ensemble at each step; ``"tsinf"``: it keeps its member."""

    n_steps: Settled[int] = 1  # it estimates no returns
    dataset_share: Settled[None] = None
    replay_buffer_class: Settled[None] = None
    replay_buffer_kwargs: Settled[None] = None
    n_learners: Settled[int] = 1
    made_of: ClassVar[MadeOf] = {"replay": Fitted, "plans": of_policy(*PLANNED)}
    learner_class: ClassVar[type[Learner]] = ModelLearner
    policies: ClassVar = {"MlpPolicy": PlanningPolicy}
    action_spaces: ClassVar = (spaces.Box,)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = f"there are only n_candidates={self.n_candidates}. Use fewer."
        require(self.n_top <= self.n_candidates, "n_top", self.n_top, fix)

    def _default_optimizer(self) -> OptimizerRecipe:
        return model_optimizer()

    def _columns(self) -> tuple[Column, ...]:
        return ()  # plans are not stored

    card: ClassVar[Card] = Card(
        idea="plan by the cross-entropy method on an ensemble of models that is learned",
        learns_from="replay, by a model",
        observations='a Box of floats (`"MlpPolicy"`)',
        search=Search(
            tune.rate(),
            tune.power_of_two("batch_size", 32, 512),
            tune.whole("horizon", 5, 50),
            tune.one_of("train_freq", [50, 100, 200, 500], 0.2),
            tune.uniform("momentum", 0.0, 0.5),
            tune.choice("propagation", ["ts1", "tsinf"]),
            tune.network(),
        ),
    )
