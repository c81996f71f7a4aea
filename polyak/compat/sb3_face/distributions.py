"""Stable-Baselines3's action distributions: objects that take new parameters in place and return themselves.

Those of the six families hold a distribution of :mod:`polyak.nn.distributions`, which does the mathematics. A
:class:`Distribution` of a user's own defines the methods that are abstract there.

Shape letters: B batch, A action dimensions, N classes, L latent features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Distribution as TorchDistribution
from typing_extensions import Self

from polyak.envs.nested_spaces import is_composed
from polyak.nn.distributions import base as values
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.discrete import (
    BernoulliFamily,
    Categorical,
    CategoricalFamily,
    MultiCategorical,
    MultiCategoricalFamily,
)
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.distributions.gaussian import GaussianFamily, Squashed, inverse_tanh, log_slope_of_tanh
from polyak.nn.distributions.state_dependent import (
    StateDependentGaussian,
    StateDependentGaussianFamily,
    state_dependent_noise,
)
from polyak.nn.errors import PolicyError

D = TypeVar("D", bound="Distribution")


class Distribution(ABC):
    """A family of action distributions; :meth:`proba_distribution` gives it the parameters for a batch of states.

    A copy by ``copy.copy`` keeps the current parameters. Deep copies and pickles leave out tensors with an autograd
    graph.
    """

    distribution: Any = None
    """The ``torch.distributions`` object of the current parameters; ``None`` before there are any."""

    @abstractmethod
    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the module (and parameter, if there is one) that makes the parameters from latent features."""

    @abstractmethod
    def proba_distribution(self, *args: Any, **kwargs: Any) -> Self:
        """Set these parameters and return self."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of ``actions``: [B]."""

    @abstractmethod
    def entropy(self) -> Tensor | None:
        """Entropy in nats: [B]; ``None`` where there is no closed form."""

    @abstractmethod
    def sample(self) -> Tensor:
        """Draws one action for each state; differentiable in the parameters where the action is continuous."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Returns the likeliest action for each state (before squashing, if the distribution squashes)."""

    @abstractmethod
    def actions_from_params(self, *args: Any, **kwargs: Any) -> Tensor:
        """Set these parameters and return actions for them."""

    @abstractmethod
    def log_prob_from_params(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Set these parameters, and return sampled actions for them and their log-density [B]."""

    def get_actions(self, deterministic: bool = False) -> Tensor:
        """Returns :meth:`mode` if ``deterministic``, else :meth:`sample`."""
        return self.mode() if deterministic else self.sample()

    def kl(self, other: Self) -> Tensor:
        """KL divergence from self to ``other``, over the whole action: [B]. See :func:`kl_divergence`."""
        return _by_state(kl_divergence(self, other))

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {name: None if _has_graph(value) else value for name, value in vars(self).items()}


def _has_graph(value: Any) -> bool:
    """Whether a tensor, or one within a ``torch.distributions`` object or a list of these, belongs to a graph."""
    if isinstance(value, Tensor):
        return value.grad_fn is not None
    if isinstance(value, TorchDistribution):
        return any(map(_has_graph, vars(value).values()))
    return isinstance(value, (list, tuple)) and any(map(_has_graph, value))


def sum_independent_dims(tensor: Tensor) -> Tensor:
    """Sum over the action dimensions: [B, A] -> [B]; a vector [A] becomes one number."""
    return tensor.sum(dim=1) if tensor.dim() > 1 else tensor.sum()


def kl_divergence(dist_true: Distribution, dist_pred: Distribution) -> Tensor:
    """Returns the divergence KL(dist_true || dist_pred).

    Returns:
        [B] for categorical and multi-categorical distributions; [B, A], by dimension, for Gaussian and Bernoulli ones,
        whose sum over A is the divergence of the whole action.

    Raises:
        PolicyError: the two are of different classes.
    """
    if type(dist_true) is not type(dist_pred):
        raise PolicyError(
            f"the KL divergence needs two distributions of the same type, got {type(dist_true).__name__} and "
            f"{type(dist_pred).__name__}."
        )
    p, q = dist_true.distribution, dist_pred.distribution
    if not isinstance(p, (list, tuple)):
        return torch.distributions.kl_divergence(p, q)
    by_choice = [torch.distributions.kl_divergence(*pair) for pair in zip(p, q, strict=True)]
    return torch.stack(by_choice, dim=1).sum(dim=1)


@dataclass(frozen=True, eq=False)
class _Given(values.Distribution):
    """A ``torch.distributions`` object that a user's subclass assigned to ``distribution``."""

    given: TorchDistribution

    def log_prob(self, actions: Tensor) -> Tensor:
        return _by_state(self.given.log_prob(actions))

    def entropy(self) -> Tensor:
        return _by_state(self.given.entropy())

    def sample(self) -> Tensor:
        return self.given.rsample() if self.given.has_rsample else self.given.sample()

    def mode(self) -> Tensor:
        return self.given.mode

    def kl(self, other: Self) -> Tensor:
        return _by_state(torch.distributions.kl_divergence(self.given, other.given))


def _by_state(tensor: Tensor) -> Tensor:
    """[B, A] -> [B], and [B] as it is."""
    return tensor.sum(dim=1) if tensor.dim() > 1 else tensor


class _OfFamily(Distribution):
    """A mutable distribution, which holds an immutable one and replaces it."""

    family: Any
    _value: Any = None

    @property
    def value(self) -> Any:
        """The distribution of :mod:`polyak.nn.distributions` for the current parameters.

        Raises:
            PolicyError: there are no parameters yet.
        """
        if self._value is None:
            raise PolicyError(f"{type(self).__name__} has no parameters yet: call proba_distribution(...) first.")
        return self._value

    @property
    def distribution(self) -> Any:
        """The ``torch.distributions`` object of the current parameters, made on each access; a subclass may assign
        one."""
        return None if self._value is None else self._as_torch(self._value)

    @distribution.setter
    def distribution(self, given: Any) -> None:
        self._value = None if given is None else self._from_torch(given)

    @abstractmethod
    def _as_torch(self, value: Any) -> Any: ...

    def _from_torch(self, given: Any) -> values.Distribution:
        return _Given(given)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.value.log_prob(actions)

    def entropy(self) -> Tensor | None:
        return self.value.entropy()

    def sample(self) -> Tensor:
        return self.value.sample()

    def mode(self) -> Tensor:
        return self.value.mode()

    def log_prob_from_params(self, *parameters: Any, **named: Any) -> tuple[Tensor, Tensor]:
        actions = self.actions_from_params(*parameters, **named)
        return actions, self.log_prob(actions)

    def kl(self, other: Self) -> Tensor:
        divergence: Tensor = self.value.kl(other.value)
        return divergence

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_value": None}


# --- Gaussian -------------------------------------------------------------------------------------------------------


class DiagGaussianDistribution(_OfFamily):
    """Independent Gaussians; the log standard deviation is a parameter that does not depend on the state.

    Args:
        action_dim: A.
    """

    family: GaussianFamily

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.family = GaussianFamily(action_dim)

    def proba_distribution_net(self, latent_dim: int, log_std_init: float = 0.0) -> tuple[nn.Module, nn.Parameter]:
        """Returns the layer for the means, and the log standard deviations [A]."""
        return self.family.make_head(latent_dim), self.family.make_log_std(latent_dim, log_std_init)

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        """Means [B, A]; log standard deviations [A] or [B, A]."""
        self._value = self.family(mean_actions, log_std)
        return self

    def actions_from_params(self, mean_actions: Tensor, log_std: Tensor, deterministic: bool = False) -> Tensor:
        return self.proba_distribution(mean_actions, log_std).get_actions(deterministic)

    def _as_torch(self, value: Any) -> Any:
        return _normal(value)


class _Squashing(_OfFamily):
    """Base of distributions that may squash actions by tanh: they keep the actions before it."""

    gaussian_actions: Tensor | None = None
    """The last returned actions, before tanh."""

    @property
    def _gaussian(self) -> Any:
        return self.value.gaussian if isinstance(self.value, Squashed) else self.value

    def sample(self) -> Tensor:
        return self._squash(self._gaussian.sample())

    def mode(self) -> Tensor:
        return self._squash(self._gaussian.mode())

    def _squash(self, gaussian_actions: Tensor) -> Tensor:
        self.gaussian_actions = gaussian_actions
        return torch.tanh(gaussian_actions) if isinstance(self.value, Squashed) else gaussian_actions

    def log_prob(self, actions: Tensor, gaussian_actions: Tensor | None = None) -> Tensor:
        """Returns the log-density of actions: [B].

        Args:
            actions: [B, A], in [-1, 1] if the output is squashed.
            gaussian_actions: [B, A] the actions before tanh, if known: more precise than inverting tanh.
        """
        if gaussian_actions is None or not isinstance(self.value, Squashed):
            return self.value.log_prob(actions)
        return self.value.log_prob_of_tanh(gaussian_actions)

    def log_prob_from_params(self, *parameters: Any, **named: Any) -> tuple[Tensor, Tensor]:
        actions = self.actions_from_params(*parameters, **named)
        return actions, self.log_prob(actions, self.gaussian_actions)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"gaussian_actions": None}


class SquashedDiagGaussianDistribution(_Squashing, DiagGaussianDistribution):
    """Independent Gaussians passed through tanh, so that actions lie in (-1, 1) (SAC, arXiv:1812.05905, appendix C).

    Args:
        action_dim: A.
        epsilon: see :class:`TanhBijector`.
    """

    def __init__(self, action_dim: int, epsilon: float = 1e-6) -> None:
        super().__init__(action_dim)
        self.family = GaussianFamily(action_dim, squash=True)
        self.bijector = TanhBijector(epsilon)

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        self.gaussian_actions = None
        return super().proba_distribution(mean_actions, log_std)

    def _from_torch(self, given: Any) -> values.Distribution:
        return Squashed(super()._from_torch(given))  # type: ignore[arg-type]


class TanhBijector:
    """The map u -> tanh(u), its inverse and its log-derivative.

    Args:
        epsilon: kept so that calls written for Stable-Baselines3 run, where it guards log(0). The exact expression used
            here needs no guard, and a guard would keep the density from integrating to 1.
    """

    def __init__(self, epsilon: float = 1e-6) -> None:
        self.epsilon = epsilon

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Tanh."""
        return torch.tanh(x)

    @staticmethod
    def atanh(x: Tensor) -> Tensor:
        """Inverse of tanh on (-1, 1)."""
        return torch.atanh(x)

    @staticmethod
    def inverse(y: Tensor) -> Tensor:
        """Inverse of tanh, finite also at -1 and 1."""
        return inverse_tanh(y)

    def log_prob_correction(self, x: Tensor) -> Tensor:
        """log(1 - tanh(x)^2)."""
        return log_slope_of_tanh(x)


class StateDependentNoiseDistribution(_Squashing):
    """Generalised state-dependent exploration (gSDE): see :mod:`polyak.nn.distributions.state_dependent`.

    The exploration matrices theta are drawn by :meth:`sample_weights` only. Stored are their standard normal draws, and
    ``log_std`` itself: gradients reach ``log_std`` through every use of the noise.

    Args:
        action_dim: A.
        full_std: one sigma for each (feature, action) pair [L, A] rather than for each feature [L, 1].
        use_expln: sigma = exp(x) for x <= 0 and 1 + log(1 + x) above, rather than exp(x) everywhere: grows slowly.
        squash_output: pass actions through tanh.
        learn_features: let the gradient of noise and density reach z.
        epsilon: added to the variance.
    """

    family: StateDependentGaussianFamily
    _log_std: Tensor
    """The log standard deviations of the batch or of the current draw, whichever is later."""

    def __init__(
        self,
        action_dim: int,
        full_std: bool = True,
        use_expln: bool = False,
        squash_output: bool = False,
        learn_features: bool = False,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.family = StateDependentGaussianFamily(
            action_dim, full_std, use_expln, squash=squash_output, learn_features=learn_features, epsilon=epsilon
        )
        self.full_std, self.use_expln, self.learn_features, self.epsilon = full_std, use_expln, learn_features, epsilon
        self.bijector = TanhBijector(epsilon) if squash_output else None
        self.latent_sde_dim: int | None = None
        self.noise = ExplorationNoise()
        """The draws, to be a submodule of the module that uses them, so that they move with it."""

    def get_std(self, log_std: Tensor) -> Tensor:
        """Sigma [L, A] from the parameter ``log_std`` [L, A], or [L, 1] without ``full_std``."""
        return self.family.sigma(log_std)

    def sample_weights(self, log_std: Tensor, batch_size: int = 1) -> None:
        """Draw new exploration matrices theta.

        Args:
            log_std: [L, A] or [L, 1].
            batch_size: number of matrices, one for each environment; a further one is used for batches of any other
                size.
        """
        self._log_std = log_std
        self.noise.draw(log_std, self.action_dim, batch_size)

    def share(self, noise: ExplorationNoise, log_std: Tensor) -> None:
        """Use the draws of a policy, and its ``log_std``, from now on."""
        self.noise, self._log_std = noise, log_std

    @property
    def exploration_matrices(self) -> Tensor:
        """Theta [batch_size, L, A]."""
        return self._theta(self.noise.own)

    @property
    def exploration_mat(self) -> Tensor:
        """Theta [L, A] for a batch whose size is not the number of exploration matrices."""
        return self._theta(self.noise.shared)

    def _theta(self, draws: Tensor) -> Tensor:
        return draws.to(self._log_std.device) * self.family.sigma(self._log_std)

    def proba_distribution_net(
        self, latent_dim: int, log_std_init: float = -2.0, latent_sde_dim: int | None = None
    ) -> tuple[nn.Module, nn.Parameter]:
        """Returns the layer for the means, and ``log_std`` [L, A] ([L, 1] without ``full_std``).

        Args:
            latent_dim: width of the actor's latent features.
            log_std_init: initial value of every entry.
            latent_sde_dim: L, the width of z; ``None`` takes ``latent_dim``.
        """
        self.latent_sde_dim = latent_dim if latent_sde_dim is None else latent_sde_dim
        means = self.family.make_head(latent_dim)
        log_std = self.family.make_log_std(self.latent_sde_dim, log_std_init)
        self.sample_weights(log_std)
        return means, log_std

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor, latent_sde: Tensor) -> Self:
        """Means [B, A], ``log_std`` [L, A] or [L, 1], and z [B, L]."""
        self.gaussian_actions = None
        self._log_std = log_std
        self._value = self.family(mean_actions, log_std, latent_sde, self._draws(latent_sde))
        return self

    def _draws(self, latent_sde: Tensor) -> Tensor:
        return self.noise.of(len(latent_sde)).to(latent_sde.device)

    def get_noise(self, latent_sde: Tensor) -> Tensor:
        """eps = theta^T z: [B, L] -> [B, A], each row by its own matrix if there are B of them."""
        latent_sde = latent_sde if self.learn_features else latent_sde.detach()
        return state_dependent_noise(latent_sde, self._theta(self.noise.of(len(latent_sde))))

    def sample(self) -> Tensor:
        gaussian = self._gaussian
        if isinstance(gaussian, StateDependentGaussian):  # the matrices may have been drawn since
            gaussian = replace(gaussian, draws=self._draws(gaussian.latent))
        return self._squash(gaussian.sample())

    def actions_from_params(
        self, mean_actions: Tensor, log_std: Tensor, latent_sde: Tensor, deterministic: bool = False
    ) -> Tensor:
        return self.proba_distribution(mean_actions, log_std, latent_sde).get_actions(deterministic)

    def _as_torch(self, value: Any) -> Any:
        return _normal(value)

    def _from_torch(self, given: Any) -> values.Distribution:
        made = super()._from_torch(given)
        return made if self.bijector is None else Squashed(made)  # type: ignore[arg-type]


def _normal(value: Any) -> TorchDistribution:
    """Returns the Gaussian of a value, before squashing."""
    gaussian = value.gaussian if isinstance(value, Squashed) else value
    return gaussian.given if isinstance(gaussian, _Given) else torch.distributions.Normal(gaussian.mean, gaussian.std)


# --- discrete -------------------------------------------------------------------------------------------------------


class OfLogits(_OfFamily):
    """Base of distributions whose only parameters are logits."""

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """Returns the layer for the logits."""
        return self.family.make_head(latent_dim)

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Logits [B, outputs of the layer]."""
        self._value = self.family(action_logits)
        return self

    def actions_from_params(self, action_logits: Tensor, deterministic: bool = False) -> Tensor:
        return self.proba_distribution(action_logits).get_actions(deterministic)


class CategoricalDistribution(OfLogits):
    """One choice among N; logits of -inf forbid a choice.

    Args:
        action_dim: N.
    """

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.family = CategoricalFamily(action_dim)

    def _as_torch(self, value: Any) -> Any:
        return value.given if isinstance(value, _Given) else torch.distributions.Categorical(logits=value.logits)


class MultiCategoricalDistribution(OfLogits):
    """Several independent choices, the i-th among ``action_dims[i]``; ``distribution`` is a list, one for each.

    Args:
        action_dims: number of classes of each choice.
    """

    def __init__(self, action_dims: Sequence[int]) -> None:
        super().__init__()
        self.action_dims = [int(n) for n in action_dims]
        self.family = MultiCategoricalFamily(tuple(self.action_dims))

    def _as_torch(self, value: Any) -> Any:
        return [torch.distributions.Categorical(logits=choice.logits) for choice in value.choices]

    def _from_torch(self, given: Any) -> values.Distribution:
        return MultiCategorical(tuple(Categorical(choice.logits) for choice in given))


class BernoulliDistribution(OfLogits):
    """Independent coins; actions are 0. or 1.

    Args:
        action_dims: A, the number of coins.
    """

    def __init__(self, action_dims: int) -> None:
        super().__init__()
        self.action_dims = action_dims
        self.family = BernoulliFamily(action_dims)

    def _as_torch(self, value: Any) -> Any:
        return value.given if isinstance(value, _Given) else torch.distributions.Bernoulli(logits=value.logits)


# --- choice ---------------------------------------------------------------------------------------------------------


def make_proba_distribution(
    action_space: spaces.Space, use_sde: bool = False, dist_kwargs: dict[str, Any] | None = None
) -> Distribution:
    """Returns the distribution that fits an action space.

    Args:
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        use_sde: state-dependent exploration (Box only) rather than a diagonal Gaussian.
        dist_kwargs: further arguments of the distribution.

    Raises:
        PolicyError: ``use_sde`` with another space than Box, or a MultiBinary of several dimensions.
        NotImplementedError: a space for which there is no distribution.
    """
    if is_composed(action_space):
        raise NotImplementedError(
            f"There is none of Stable-Baselines3's distributions over the action space {action_space}. Use polyak.PPO, "
            "polyak.A2C, polyak.TRPO or polyak.REINFORCE."
        )
    return of_family(make_family(action_space, use_sde), _OF_FAMILY, **(dist_kwargs or {}))


_OF_FAMILY: Mapping[type[values.Family], type[Distribution]] = {
    GaussianFamily: DiagGaussianDistribution,
    StateDependentGaussianFamily: StateDependentNoiseDistribution,
    CategoricalFamily: CategoricalDistribution,
    MultiCategoricalFamily: MultiCategoricalDistribution,
    BernoulliFamily: BernoulliDistribution,
}


def of_family(family: Any, classes: Mapping[type[values.Family], type[D]], **options: Any) -> D:
    """Returns the distribution of a family, by the class of the family."""
    make: Any = classes[type(family)]
    distribution: D = make(getattr(family, "action_dims", None) or family.action_dim, **options)
    return distribution
