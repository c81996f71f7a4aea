"""What an algorithm of one's own is made of: a kind to derive from, a learner, hyper-parameters, a card.

See the page "An algorithm of your own".
"""

from polyak.algorithms import register
from polyak.algorithms.model_based.imagining import Imagining
from polyak.cards import Card, Search, tune
from polyak.hyperparameters.declaration import Count, Fraction, Natural, NonNegative, Only, Positive
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.offline import OfflineAlgorithm
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.learning.rollout_learner import OnPolicyLearner
from polyak.nn.catalog import policy_aliases
from polyak.ops.policy_gradient import entropy_loss
from polyak.schedules import Schedule

__all__ = [
    "Card",
    "Count",
    "Fraction",
    "Imagining",
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
    "Positive",
    "Schedule",
    "Search",
    "Tunable",
    "Update",
    "entropy_loss",
    "policy_aliases",
    "register",
    "tune",
]
