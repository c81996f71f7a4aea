"""Networks: features extractors, action distributions, policies, and the choice of them by space."""

from polyak.nn.catalog import PolicyRecipe, policy_aliases
from polyak.nn.distributions.base import Distribution, Family
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.discrete import (
    Bernoulli,
    BernoulliFamily,
    Categorical,
    CategoricalFamily,
    MultiCategorical,
    MultiCategoricalFamily,
    SparseCategorical,
    SparseCategoricalFamily,
)
from polyak.nn.distributions.gaussian import Gaussian, GaussianFamily, Squashed
from polyak.nn.distributions.product import Product, ProductFamily
from polyak.nn.distributions.state_dependent import StateDependentGaussian, StateDependentGaussianFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.batch_renorm import BatchRenorm1d
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
from polyak.nn.policies.categorical import CategoricalActor, CategoricalPolicy, DiscreteCritic
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy, DeterministicActor, SquashedGaussianActor
from polyak.nn.policies.crossq import CrossQActor, CrossQCritic
from polyak.nn.policies.maskable import MaskableActorCriticPolicy
from polyak.nn.policies.pairs import PairedPolicy
from polyak.nn.policies.quantile_critic import QuantileCritic
from polyak.nn.policies.value import QNetwork, ValuePolicy

__all__ = [
    "ActorCriticPolicy",
    "BaseFeaturesExtractor",
    "BatchRenorm1d",
    "Bernoulli",
    "BernoulliFamily",
    "Categorical",
    "CategoricalActor",
    "CategoricalFamily",
    "CategoricalPolicy",
    "CombinedExtractor",
    "ContinuousCritic",
    "ContinuousPolicy",
    "CrossQActor",
    "CrossQCritic",
    "DeterministicActor",
    "DiscreteCritic",
    "Distribution",
    "Family",
    "FlattenExtractor",
    "Gaussian",
    "GaussianFamily",
    "MaskableActorCriticPolicy",
    "MlpExtractor",
    "MultiCategorical",
    "MultiCategoricalFamily",
    "NatureCNN",
    "Network",
    "PairedPolicy",
    "Policy",
    "PolicyError",
    "PolicyRecipe",
    "Product",
    "ProductFamily",
    "QNetwork",
    "QuantileCritic",
    "RMSpropTFLike",
    "SparseCategorical",
    "SparseCategoricalFamily",
    "Squashed",
    "SquashedGaussianActor",
    "StateDependentGaussian",
    "StateDependentGaussianFamily",
    "ValuePolicy",
    "create_mlp",
    "get_actor_critic_arch",
    "make_family",
    "policy_aliases",
    "preprocess_obs",
]
