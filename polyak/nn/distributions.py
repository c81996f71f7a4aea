"""Action distributions: parameters from the network -> samples, densities, entropies.

Everything a training loop calls is a plain tensor expression: no ``torch.distributions`` object is made, no branch
looks at data, so each function here compiles. :attr:`Distribution.distribution` makes such an object on request.

Shape letters: B batch, A action dimensions, N classes, L latent features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Self

from polyak.envs.spaces import get_action_dim
from polyak.nn.errors import PolicyError
from polyak.nn.exploration import ExplorationNoise

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LOG_2 = math.log(2.0)


class Distribution(ABC):
    """A family of action distributions; :meth:`proba_distribution` gives it the parameters for a batch of states."""

    _per_batch: ClassVar[tuple[str, ...]] = ()
    """Attributes that hold the tensors of the current batch, with their autograd graph: not copied, not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._per_batch}

    @property
    @abstractmethod
    def distribution(self) -> Any:
        """The ``torch.distributions`` object of the current parameters, made anew on each access."""

    @abstractmethod
    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> Any:
        """The module (and parameter, if there is one) that makes the parameters from latent features."""

    @abstractmethod
    def proba_distribution(self, *args: Any, **kwargs: Any) -> Self:
        """Take these parameters and return self."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of ``actions``: [B]."""

    @abstractmethod
    def entropy(self) -> Tensor | None:
        """Entropy in nats: [B]; ``None`` where there is no closed form."""

    @abstractmethod
    def sample(self) -> Tensor:
        """One action for each state; differentiable in the parameters where the action is continuous."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The likeliest action for each state (before squashing, if the distribution squashes)."""

    def get_actions(self, deterministic: bool = False) -> Tensor:
        """:meth:`mode` if ``deterministic``, else :meth:`sample`."""
        return self.mode() if deterministic else self.sample()

    def actions_from_params(self, *params: Tensor, deterministic: bool = False, **named: Any) -> Tensor:
        """Actions for these parameters."""
        return self.proba_distribution(*params, **named).get_actions(deterministic)

    def log_prob_from_params(self, *params: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
        """Sampled actions for these parameters, and their log-density [B]."""
        actions = self.actions_from_params(*params, **named)
        return actions, self.log_prob(actions)

    def kl(self, other: Distribution) -> Tensor:
        """KL divergence from self to ``other``, over the whole action: [B].

        Raises:
            PolicyError: the two are of different families.
        """
        return sum_independent_dims(self._kl_by_dim(other))

    def _kl_by_dim(self, other: Distribution) -> Tensor:
        if type(self) is not type(other):
            raise PolicyError(
                f"the KL divergence needs two distributions of the same type, got {type(self).__name__} and "
                f"{type(other).__name__}."
            )
        return self._kl(other)

    @abstractmethod
    def _kl(self, other: Any) -> Tensor:
        """KL divergence to ``other`` of the same class, by independent dimension [B, A], or [B]."""


def sum_independent_dims(tensor: Tensor) -> Tensor:
    """Sum over the action dimensions: [B, A] -> [B]; a vector [A] becomes one number."""
    return tensor.sum(dim=1) if tensor.dim() > 1 else tensor.sum()


def kl_divergence(dist_true: Distribution, dist_pred: Distribution) -> Tensor:
    """KL(dist_true || dist_pred) in the shapes of Stable-Baselines3.

    Returns:
        [B] for categorical and multi-categorical distributions; [B, A], by dimension, for Gaussian and Bernoulli ones,
        whose sum over A is the divergence of the whole action: :meth:`Distribution.kl` gives that.

    Raises:
        PolicyError: the two are of different families.
    """
    return dist_true._kl_by_dim(dist_pred)


# --- Gaussian -------------------------------------------------------------------------------------------------------


class DiagGaussianDistribution(Distribution):
    """Independent Gaussians; the log standard deviation is a parameter that does not depend on the state.

    Args:
        action_dim: A.
    """

    _per_batch = ("mean", "log_std", "std", "gaussian_actions")
    mean: Tensor
    log_std: Tensor
    std: Tensor

    def __init__(self, action_dim: int) -> None:
        self.action_dim = action_dim

    @property
    def distribution(self) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean, self.std)

    def proba_distribution_net(self, latent_dim: int, log_std_init: float = 0.0) -> tuple[nn.Module, nn.Parameter]:
        """The layer for the means, and the log standard deviations [A]."""
        return nn.Linear(latent_dim, self.action_dim), nn.Parameter(torch.full((self.action_dim,), float(log_std_init)))

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        """Means [B, A]; log standard deviations [A] or [B, A]."""
        self.mean, self.log_std = mean_actions, log_std.expand_as(mean_actions)
        self.std = self.log_std.exp()
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions - self.mean) / self.std
        return sum_independent_dims(-0.5 * z * z - self.log_std - HALF_LOG_2PI)

    def entropy(self) -> Tensor | None:
        return sum_independent_dims(self.log_std + (0.5 + HALF_LOG_2PI))

    def sample(self) -> Tensor:
        return self.mean + self.std * torch.randn_like(self.mean)

    def mode(self) -> Tensor:
        return self.mean

    def _kl(self, other: DiagGaussianDistribution) -> Tensor:
        return _gaussian_kl(self.mean, self.std, other.mean, other.std)


class SquashedDiagGaussianDistribution(DiagGaussianDistribution):
    """Independent Gaussians passed through tanh, so that actions lie in (-1, 1) (SAC, arXiv:1812.05905, appendix C).

    Args:
        action_dim: A.
        epsilon: see :class:`TanhBijector`.
    """

    gaussian_actions: Tensor | None = None
    """The last actions given out, before tanh."""

    def __init__(self, action_dim: int, epsilon: float = 1e-6) -> None:
        super().__init__(action_dim)
        self.bijector = TanhBijector(epsilon)

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        self.gaussian_actions = None
        return super().proba_distribution(mean_actions, log_std)

    def log_prob(self, actions: Tensor, gaussian_actions: Tensor | None = None) -> Tensor:
        """Log-density of squashed actions: [B].

        Args:
            actions: [B, A] in [-1, 1].
            gaussian_actions: [B, A] what they were before tanh, if known: more precise than inverting tanh.
        """
        if gaussian_actions is None:
            gaussian_actions = self.bijector.inverse(actions)
        correction = sum_independent_dims(self.bijector.log_prob_correction(gaussian_actions))
        return super().log_prob(gaussian_actions) - correction

    def entropy(self) -> Tensor | None:
        """None: the entropy of a squashed Gaussian has no closed form; estimate it by ``-log_prob``."""
        return None

    def sample(self) -> Tensor:
        self.gaussian_actions = super().sample()
        return torch.tanh(self.gaussian_actions)

    def mode(self) -> Tensor:
        self.gaussian_actions = self.mean
        return torch.tanh(self.mean)

    def log_prob_from_params(self, *params: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
        actions = self.actions_from_params(*params, **named)
        return actions, self.log_prob(actions, self.gaussian_actions)


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
        """Inverse of tanh, finite also at -1 and 1, which are moved inwards by one rounding unit."""
        limit = 1.0 - torch.finfo(y.dtype).eps
        return torch.atanh(y.clamp(-limit, limit))

    def log_prob_correction(self, x: Tensor) -> Tensor:
        """log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), exact and finite for all finite x."""
        return 2.0 * (LOG_2 - x - F.softplus(-2.0 * x))


class StateDependentNoiseDistribution(Distribution):
    """Generalised state-dependent exploration, gSDE (Raffin et al. 2020, arXiv:2005.05719, section 3).

    The noise is eps = theta^T z(s) with theta ~ N(0, sigma^2) [L, A]. Theta is drawn by :meth:`sample_weights` only, so
    that between two draws the noise is a deterministic function of the state. Over theta, actions are Gaussian with
    variance z(s)^2 sigma^2, which is what :meth:`log_prob` and :meth:`entropy` use.

    What is kept is the standard normal draw behind theta, and ``log_std`` itself: gradients reach ``log_std`` through
    every use of the noise.

    Args:
        action_dim: A.
        full_std: one sigma for each (feature, action) pair [L, A] rather than for each feature [L, 1].
        use_expln: sigma = exp(x) for x <= 0 and 1 + log(1 + x) above, rather than exp(x) everywhere: grows slowly.
        squash_output: pass actions through tanh.
        learn_features: let the gradient of noise and density reach z.
        epsilon: added to the variance.
    """

    _per_batch = ("mean", "std", "_log_std", "_latent_sde", "gaussian_actions")
    mean: Tensor
    std: Tensor
    gaussian_actions: Tensor | None = None
    """The last actions given out, before tanh."""
    _log_std: Tensor | None = None
    """That of the batch at hand, if there is one since the last draw."""

    def __init__(
        self,
        action_dim: int,
        full_std: bool = True,
        use_expln: bool = False,
        squash_output: bool = False,
        learn_features: bool = False,
        epsilon: float = 1e-6,
    ) -> None:
        self.action_dim = action_dim
        self.full_std = full_std
        self.use_expln = use_expln
        self.learn_features = learn_features
        self.epsilon = epsilon
        self.bijector = TanhBijector(epsilon) if squash_output else None
        self.latent_sde_dim: int | None = None
        self.noise = ExplorationNoise()
        """The draws; to be made a part of the module that uses them, so that it takes them along."""

    @property
    def distribution(self) -> torch.distributions.Normal:
        """The Gaussian before squashing."""
        return torch.distributions.Normal(self.mean, self.std)

    def get_std(self, log_std: Tensor) -> Tensor:
        """Sigma [L, A] from the parameter ``log_std`` [L, A], or [L, 1] without ``full_std``."""
        if self.use_expln:
            std = torch.where(log_std > 0, torch.log1p(log_std.clamp(min=0)) + 1.0, log_std.clamp(max=0).exp())
        else:
            std = log_std.exp()
        return std if self.full_std else std.expand(-1, self.action_dim)

    def sample_weights(self, log_std: Tensor, batch_size: int = 1) -> None:
        """Draw new exploration matrices theta.

        Args:
            log_std: [L, A] or [L, 1].
            batch_size: how many, one for each environment; one more serves batches of any other size.
        """
        self._weights_log_std, self._log_std = log_std, None
        self.noise.draw(log_std, self.action_dim, batch_size)

    @property
    def exploration_matrices(self) -> Tensor:
        """Theta [batch_size, L, A]."""
        return self._theta(self.noise.own, self._weights_log_std)

    @property
    def exploration_mat(self) -> Tensor:
        """Theta [L, A] for a batch whose size is not the number of exploration matrices."""
        return self._theta(self.noise.shared, self._weights_log_std)

    def _theta(self, noise: Tensor, log_std: Tensor) -> Tensor:
        return noise.to(log_std.device) * self.get_std(log_std)

    def proba_distribution_net(
        self, latent_dim: int, log_std_init: float = -2.0, latent_sde_dim: int | None = None
    ) -> tuple[nn.Module, nn.Parameter]:
        """The layer for the means, and ``log_std`` [L, A] ([L, 1] without ``full_std``).

        Args:
            latent_dim: width of the actor's latent features.
            log_std_init: initial value of every entry.
            latent_sde_dim: L, the width of z; ``None`` takes ``latent_dim``.
        """
        self.latent_sde_dim = latent_dim if latent_sde_dim is None else latent_sde_dim
        columns = self.action_dim if self.full_std else 1
        means = nn.Linear(latent_dim, self.action_dim)
        log_std = nn.Parameter(torch.full((self.latent_sde_dim, columns), float(log_std_init)))
        self.sample_weights(log_std)
        return means, log_std

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor, latent_sde: Tensor) -> Self:
        """Means [B, A], ``log_std`` [L, A] or [L, 1], and z [B, L]."""
        self.gaussian_actions = None
        self._log_std = log_std
        self._latent_sde = latent_sde if self.learn_features else latent_sde.detach()
        variance = torch.mm(self._latent_sde**2, self.get_std(log_std) ** 2)
        self.mean, self.std = mean_actions, torch.sqrt(variance + self.epsilon)
        return self

    def get_noise(self, latent_sde: Tensor) -> Tensor:
        """eps = theta^T z: [B, L] -> [B, A], each row by its own matrix if there are B of them."""
        latent_sde = latent_sde if self.learn_features else latent_sde.detach()
        log_std = self._weights_log_std if self._log_std is None else self._log_std
        theta = self._theta(self.noise.of(len(latent_sde)), log_std)
        if theta.dim() == 2:
            return torch.mm(latent_sde, theta)
        return torch.bmm(latent_sde.unsqueeze(1), theta).squeeze(1)

    def log_prob(self, actions: Tensor, gaussian_actions: Tensor | None = None) -> Tensor:
        """Log-density over theta: [B].

        Args:
            actions: [B, A], in [-1, 1] if the output is squashed.
            gaussian_actions: [B, A] what they were before tanh, if known: more precise than inverting tanh.
        """
        if self.bijector is None:
            gaussian_actions = actions
        elif gaussian_actions is None:
            gaussian_actions = self.bijector.inverse(actions)
        z = (gaussian_actions - self.mean) / self.std
        log_prob = sum_independent_dims(-0.5 * z * z - self.std.log() - HALF_LOG_2PI)
        if self.bijector is None:
            return log_prob
        return log_prob - sum_independent_dims(self.bijector.log_prob_correction(gaussian_actions))

    def entropy(self) -> Tensor | None:
        """[B]; None if the output is squashed, where there is no closed form."""
        if self.bijector is not None:
            return None
        return sum_independent_dims(self.std.log() + (0.5 + HALF_LOG_2PI))

    def sample(self) -> Tensor:
        return self._squash(self.mean + self.get_noise(self._latent_sde))

    def mode(self) -> Tensor:
        return self._squash(self.mean)

    def _squash(self, gaussian_actions: Tensor) -> Tensor:
        self.gaussian_actions = gaussian_actions
        return gaussian_actions if self.bijector is None else torch.tanh(gaussian_actions)

    def log_prob_from_params(self, *params: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
        actions = self.actions_from_params(*params, **named)
        return actions, self.log_prob(actions, self.gaussian_actions)

    def _kl(self, other: StateDependentNoiseDistribution) -> Tensor:
        return _gaussian_kl(self.mean, self.std, other.mean, other.std)


def _gaussian_kl(mean_p: Tensor, std_p: Tensor, mean_q: Tensor, std_q: Tensor) -> Tensor:
    """KL(N(mean_p, std_p^2) || N(mean_q, std_q^2)) by dimension; tanh on both sides would not change it."""
    ratio = (std_p / std_q) ** 2
    return 0.5 * (ratio + ((mean_p - mean_q) / std_q) ** 2 - 1.0 - ratio.log())


# --- discrete -------------------------------------------------------------------------------------------------------


class CategoricalDistribution(Distribution):
    """One choice among N.

    Args:
        action_dim: N.
    """

    _per_batch = ("logits",)
    logits: Tensor

    def __init__(self, action_dim: int) -> None:
        self.action_dim = action_dim

    @property
    def distribution(self) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.logits)

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The layer for the logits."""
        return nn.Linear(latent_dim, self.action_dim)

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Unnormalised log-probabilities [B, N]; -inf forbids a choice."""
        self.logits = action_logits.log_softmax(dim=-1)
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the choices [B]."""
        return self.logits.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor | None:
        return _categorical_entropy(self.logits)

    def sample(self) -> Tensor:
        return _sample_categorical(self.logits)

    def mode(self) -> Tensor:
        return self.logits.argmax(dim=-1)

    def _kl(self, other: CategoricalDistribution) -> Tensor:
        return _categorical_kl(self.logits, other.logits)

    def kl(self, other: Distribution) -> Tensor:
        return self._kl_by_dim(other)


class MultiCategoricalDistribution(Distribution):
    """Several independent choices, the i-th among ``action_dims[i]``.

    Args:
        action_dims: number of classes of each choice.
    """

    _per_batch = ("logits",)
    logits: list[Tensor]

    def __init__(self, action_dims: Sequence[int]) -> None:
        self.action_dims = [int(n) for n in action_dims]

    @property
    def distribution(self) -> list[torch.distributions.Categorical]:
        """One for each choice."""
        return [torch.distributions.Categorical(logits=logits) for logits in self.logits]

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The layer for the logits of all choices, one after the other."""
        return nn.Linear(latent_dim, sum(self.action_dims))

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Unnormalised log-probabilities [B, sum of action_dims]."""
        self.logits = [logits.log_softmax(dim=-1) for logits in action_logits.split(self.action_dims, dim=1)]
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the choices [B, A]: [B]."""
        indices = actions.long()
        return torch.stack(
            [logits.gather(-1, indices[:, i : i + 1]).squeeze(-1) for i, logits in enumerate(self.logits)], dim=1
        ).sum(dim=1)

    def entropy(self) -> Tensor | None:
        return torch.stack([_categorical_entropy(logits) for logits in self.logits], dim=1).sum(dim=1)

    def sample(self) -> Tensor:
        return torch.stack([_sample_categorical(logits) for logits in self.logits], dim=1)

    def mode(self) -> Tensor:
        return torch.stack([logits.argmax(dim=-1) for logits in self.logits], dim=1)

    def _kl(self, other: MultiCategoricalDistribution) -> Tensor:
        pairs = zip(self.logits, other.logits, strict=True)
        return torch.stack([_categorical_kl(p, q) for p, q in pairs], dim=1).sum(dim=1)

    def kl(self, other: Distribution) -> Tensor:
        return self._kl_by_dim(other)


class BernoulliDistribution(Distribution):
    """Independent coins; actions are 0. or 1.

    Args:
        action_dims: A, the number of coins.
    """

    _per_batch = ("logits",)
    logits: Tensor

    def __init__(self, action_dims: int) -> None:
        self.action_dims = action_dims

    @property
    def distribution(self) -> torch.distributions.Bernoulli:
        return torch.distributions.Bernoulli(logits=self.logits)

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The layer for the logits."""
        return nn.Linear(latent_dim, self.action_dims)

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Log-odds of 1: [B, A]."""
        self.logits = action_logits
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the coins [B, A]: [B]."""
        return -_coin_loss(self.logits, actions.to(self.logits.dtype)).sum(dim=1)

    def entropy(self) -> Tensor | None:
        return _coin_loss(self.logits, torch.sigmoid(self.logits)).sum(dim=1)

    def sample(self) -> Tensor:
        return (torch.rand_like(self.logits) < torch.sigmoid(self.logits)).to(self.logits.dtype)

    def mode(self) -> Tensor:
        return (self.logits > 0).to(self.logits.dtype)

    def _kl(self, other: BernoulliDistribution) -> Tensor:
        p = torch.sigmoid(self.logits)
        return _coin_loss(other.logits, p) - _coin_loss(self.logits, p)


def _sample_categorical(logits: Tensor) -> Tensor:
    """Log-probabilities [B, N] -> [B]: argmax of the logits plus Gumbel noise, -log of an exponential variable.

    The noise is kept finite, so that a class of log-probability -inf cannot win.
    """
    exponential = torch.empty_like(logits).exponential_().clamp_min(torch.finfo(logits.dtype).tiny)
    return (logits.detach() - exponential.log()).argmax(dim=-1)


def _categorical_entropy(logits: Tensor) -> Tensor:
    """Entropy [B] of log-probabilities [B, N]; a class of log-probability -inf adds nothing."""
    finite = logits.clamp_min(torch.finfo(logits.dtype).min)
    return -(finite.exp() * finite).sum(dim=-1)


def _categorical_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL [B] between log-probabilities [B, N]; huge where q forbids what p allows."""
    lowest = torch.finfo(p.dtype).min
    p, q = p.clamp_min(lowest), q.clamp_min(lowest)
    return (p.exp() * (p - q)).sum(dim=-1)


def _coin_loss(logits: Tensor, probs: Tensor) -> Tensor:
    """Cross-entropy of coins with log-odds ``logits`` under ``probs``: [B, A]."""
    return F.softplus(logits) - probs * logits


# --- choice ---------------------------------------------------------------------------------------------------------


def make_proba_distribution(
    action_space: spaces.Space, use_sde: bool = False, dist_kwargs: dict[str, Any] | None = None
) -> Distribution:
    """The distribution that fits an action space.

    Args:
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        use_sde: state-dependent exploration (Box only) rather than a diagonal Gaussian.
        dist_kwargs: further arguments of the distribution.

    Raises:
        PolicyError: ``use_sde`` with another space than Box, or a MultiBinary of several dimensions.
        NotImplementedError: a space for which there is no distribution.
    """
    kwargs = dist_kwargs or {}
    if use_sde and not isinstance(action_space, spaces.Box):
        raise PolicyError(
            f"use_sde=True: state-dependent exploration needs continuous actions (a Box), got {action_space}. "
            "Leave use_sde out."
        )
    if isinstance(action_space, spaces.Box):
        family = StateDependentNoiseDistribution if use_sde else DiagGaussianDistribution
        return family(get_action_dim(action_space), **kwargs)
    if isinstance(action_space, spaces.Discrete):
        return CategoricalDistribution(int(action_space.n), **kwargs)
    if isinstance(action_space, spaces.MultiDiscrete):
        return MultiCategoricalDistribution([int(n) for n in action_space.nvec.flatten()], **kwargs)
    if isinstance(action_space, spaces.MultiBinary):
        if len(action_space.shape) != 1:
            raise PolicyError(
                f"Multi-dimensional MultiBinary({action_space.n}) action space is not supported. "
                "Flatten it to one dimension."
            )
        return BernoulliDistribution(int(action_space.shape[0]), **kwargs)
    raise NotImplementedError(
        f"There is no distribution over the action space {action_space}. "
        "Use Box, Discrete, MultiDiscrete or MultiBinary."
    )
