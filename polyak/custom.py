"""What an algorithm of one's own is made of: a kind to derive from, a learner, hyper-parameters, a card.

See the page "An algorithm of your own".
"""

from polyak.algorithms import register
from polyak.cards import Card, Search, tune
from polyak.core.hyperparameters import Count, Fraction, Natural, NonNegative, Only, Positive
from polyak.core.learner import Dial, Learner, LearnerRecipe, Objective, Update
from polyak.core.loops.off_policy import OffPolicyAlgorithm
from polyak.core.loops.offline import OfflineAlgorithm
from polyak.core.loops.on_policy import OnPolicyAlgorithm
from polyak.core.loops.rollout_learner import OnPolicyLearner
from polyak.core.schedules import Schedule
from polyak.nn.catalog import policy_aliases
from polyak.ops.policy_gradient import entropy_loss

__all__ = [
    "Card",
    "Count",
    "Dial",
    "Fraction",
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
    "Update",
    "entropy_loss",
    "policy_aliases",
    "register",
    "tune",
]
