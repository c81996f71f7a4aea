"""Building blocks of a user's own algorithm: base classes, learners, hyper-parameters, parts, cards.

See the page "An algorithm of your own".
"""

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms import register
from polyak.algorithms.model_based.imagining import Imagining
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import Reload, WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, Natural, NonNegative, Only, Positive, Scheduled
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.learning.rollout_learner import OnPolicyLearner, entropy_loss
from polyak.nn.catalog import policy_aliases
from polyak.ops.updates import polyak_update
from polyak.parts.epsilon import EpsilonOfRollouts, EpsilonOfSteps
from polyak.parts.part import KeptAttributes, Part, Through, of_policy
from polyak.parts.replay import ExperienceReplay
from polyak.parts.rollouts import Rollouts
from polyak.schedules import Schedule

__all__ = [
    "Card",
    "Count",
    "EpsilonOfRollouts",
    "EpsilonOfSteps",
    "ExperienceReplay",
    "Fraction",
    "Imagining",
    "KeptAttributes",
    "Learner",
    "LearnerRecipe",
    "Natural",
    "NonNegative",
    "Objective",
    "OffPolicyAlgorithm",
    "OfflineAlgorithm",
    "OnPolicyAlgorithm",
    "OnPolicyLearner",
    "Only",
    "Part",
    "Positive",
    "Reload",
    "Rollouts",
    "Schedule",
    "Scheduled",
    "Search",
    "Through",
    "Tunable",
    "Update",
    "WithNetworks",
    "entropy_loss",
    "of_policy",
    "policy_aliases",
    "polyak_update",
    "register",
    "tune",
]
