"""Networks: features extractors, action distributions, policies, and the choice of them by space."""

from polyak.nn.catalog import PolicyRecipe, policy_aliases
from polyak.nn.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    Distribution,
    MultiCategoricalDistribution,
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
    TanhBijector,
    kl_divergence,
    make_proba_distribution,
    sum_independent_dims,
)
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
    preprocess_obs,
)
from polyak.nn.networks.layers import MlpExtractor, create_mlp, get_actor_critic_arch
from polyak.nn.optim import RMSpropTFLike
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Network, Policy
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy, DeterministicActor, SquashedGaussianActor
from polyak.nn.policies.value import QNetwork, ValuePolicy

__all__ = [
    "ActorCriticPolicy",
    "BaseFeaturesExtractor",
    "BernoulliDistribution",
    "CategoricalDistribution",
    "CombinedExtractor",
    "ContinuousCritic",
    "ContinuousPolicy",
    "DeterministicActor",
    "DiagGaussianDistribution",
    "Distribution",
    "FlattenExtractor",
    "MlpExtractor",
    "MultiCategoricalDistribution",
    "NatureCNN",
    "Network",
    "Policy",
    "PolicyError",
    "PolicyRecipe",
    "QNetwork",
    "RMSpropTFLike",
    "SquashedDiagGaussianDistribution",
    "SquashedGaussianActor",
    "StateDependentNoiseDistribution",
    "TanhBijector",
    "ValuePolicy",
    "create_mlp",
    "get_actor_critic_arch",
    "kl_divergence",
    "make_proba_distribution",
    "policy_aliases",
    "preprocess_obs",
    "sum_independent_dims",
]
