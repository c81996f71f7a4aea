"""A dynamics model: an ensemble of networks that predict distributions of the next state and the reward.

Chua et al. 2018, "Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models" (PETS),
arXiv:1805.12114, section 4 and appendix A.1; Janner et al. 2019, "When to Trust Your Model" (MBPO), arXiv:1906.08253,
for the reward as a further output and for elites.

Shapes: K members of the ensemble, E elites among them, B rows of each, S dimensions of an observation, A of an action,
D = S + 1 of an output: the change of the observation, then the reward.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from polyak.envs.spaces import get_action_dim
from polyak.nn.codec import make_codec, stretched
from polyak.nn.errors import PolicyError
from polyak.nn.networks.layers import Activation, check_activation, check_widths
from polyak.nn.policies.base import Network, check_bounded

Outcomes = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A user's function of a batch: observations [B, ...], actions [B, ...] in the environment's units and next
observations [B, ...] -> rewards [B], or whether the next states are terminal [B] bool."""

LEAST_LOG_VAR, MOST_LOG_VAR = -10.0, 0.5
"""Initial bounds of log-variances."""


def soft_bounds(raw: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """Bounds a log-variance smoothly from both sides: appendix A.1 of PETS. All broadcast."""
    below = most - F.softplus(most - raw)
    return least + F.softplus(below - least)


class Prediction(NamedTuple):
    """The predicted distribution of each row, in standardised units."""

    mean: Tensor
    """[K, B, D]"""
    log_var: Tensor
    """[K, B, D]"""
    logit: Tensor
    """[K, B] logit of the probability that the next state is terminal."""


class Imagined(NamedTuple):
    """One imagined step."""

    next_observations: Tensor
    """[E, B, S]"""
    rewards: Tensor
    """[E, B]"""
    terminated: Tensor
    """[E, B] bool"""


class EnsembleLinear(nn.Module):
    """K linear layers of equal size as one batched matrix product: [K, B, inputs] -> [K, B, outputs].

    Args:
        n_members: K.
        inputs, outputs: widths of each layer.
    """

    def __init__(self, n_members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        std = 0.5 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(n_members, inputs, outputs))
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)
        self.bias = nn.Parameter(torch.zeros(n_members, 1, outputs))

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Applies the layers of ``members`` [E] only, or of all if ``None``."""
        if members is None:
            return torch.baddbmm(self.bias, x, self.weight)
        return torch.baddbmm(self.bias[members], x, self.weight[members])


class DynamicsModel(Network):
    """K networks, each of which takes a state and an action, and predicts Gaussians of the state's change and the
    reward, and the probability of termination.

    Inputs and outputs are standardised by the statistics of the training rows. A learned termination occurs if its
    probability exceeds 1/2, and only if the training rows contain a termination.

    Args:
        observation_space: a Box of real numbers.
        action_space: a Box with finite bounds. Actions are in the units of policies, in [-1, 1].
        n_members: K.
        n_elites: E, the members that are used for imagination: those with the smallest loss on held-out rows; ``None``:
            all.
        net_arch: widths of the hidden layers.
        activation_fn: follows every hidden layer.
        reward_function: gives rewards; ``None``: they are learned.
        termination_function: gives whether next states are terminal; ``None``: that is learned.

    Raises:
        PolicyError: unsupported spaces, or an argument out of range.
    """

    input_mean: Tensor
    input_std: Tensor
    target_mean: Tensor
    target_std: Tensor
    elites: Tensor
    """[E] int64, indices of the elites."""
    terminates: Tensor
    """[] bool, whether a training row ended in a terminal state."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        n_members: int = 5,
        n_elites: int | None = None,
        net_arch: Sequence[int] = (200, 200, 200),
        activation_fn: Activation = nn.SiLU,
        reward_function: Outcomes | None = None,
        termination_function: Outcomes | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        if not (isinstance(observation_space, spaces.Box) and observation_space.dtype.kind == "f"):
            raise PolicyError(
                f"a model of the environment predicts vectors of real numbers, no images and no choices, but the "
                f"observation space is {observation_space}. Give the environment a Box of floats: "
                "gymnasium.wrappers.FlattenObservation makes one of a Dict."
            )
        check_bounded(action_space)
        if n_members < 1:
            raise PolicyError(f"n_members must be at least 1, got {n_members}.")
        n_elites = n_members if n_elites is None else n_elites
        if not 1 <= n_elites <= n_members:
            raise PolicyError(f"n_elites must be from 1 to n_members={n_members}, got {n_elites}.")
        check_activation(activation_fn)
        self.n_members, self.n_elites = n_members, n_elites
        self.reward_function, self.termination_function = reward_function, termination_function
        self.n_observed = math.prod(observation_space.shape)
        outputs, inputs = self.n_observed + 1, self.n_observed + get_action_dim(action_space)
        widths = [inputs, *check_widths(net_arch, "net_arch"), 2 * outputs + 1]
        self.layers = nn.ModuleList(EnsembleLinear(n_members, *pair) for pair in pairwise(widths))
        self.activation = activation_fn()
        self.least_log_var = nn.Parameter(torch.full((n_members, 1, outputs), LEAST_LOG_VAR))
        self.most_log_var = nn.Parameter(torch.full((n_members, 1, outputs), MOST_LOG_VAR))
        for name, size in (("input", inputs), ("target", outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))
        self.register_buffer("elites", torch.arange(n_elites))
        self.register_buffer("terminates", torch.tensor(False))
        self._numbers = make_codec(action_space, squash=True).numbers()

    def forward(self, observations: Tensor, actions: Tensor, members: Tensor | None = None) -> Prediction:
        """Returns the members' predictions for observations [K, B, S] and actions [K, B, A]; ``members`` [E]: by
        default all."""
        hidden = (torch.cat([observations, actions], -1) - self.input_mean) / self.input_std
        for layer in list(self.layers)[:-1]:
            hidden = self.activation(layer(hidden, members))
        mean, raw, logit = self.layers[-1](hidden, members).split([self.n_observed + 1, self.n_observed + 1, 1], -1)
        chosen = slice(None) if members is None else members
        log_var = soft_bounds(raw, self.least_log_var[chosen], self.most_log_var[chosen])
        return Prediction(mean, log_var, logit.squeeze(-1))

    def targets(self, observations: Tensor, rewards: Tensor, next_observations: Tensor) -> Tensor:
        """Returns standardised changes and rewards [..., B, D] of observations [..., B, S] and rewards [..., B]."""
        found = torch.cat([next_observations - observations, rewards.unsqueeze(-1)], -1)
        return (found - self.target_mean) / self.target_std

    @torch.no_grad()
    def standardise(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, terminated: Tensor
    ) -> None:
        """Set the statistics from rows [B, ...]; a constant column is only centred."""
        changes = torch.cat([next_observations - observations, rewards.unsqueeze(-1)], -1)
        for name, rows in (("input", torch.cat([observations, actions], -1)), ("target", changes)):
            var, mean = torch.var_mean(rows, 0, correction=0)
            std = var.sqrt()
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_std").copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))
        self.terminates.copy_(terminated.any())

    @torch.no_grad()
    def advance(self, observations: Tensor, actions: Tensor, noise: Tensor | None = None) -> Imagined:
        """Returns one step of the environment, as each elite imagines it.

        Args:
            observations: [E, B, S].
            actions: [E, B, A].
            noise: [E, B, D] standard normal; ``None``: use the means.
        """
        members = None if self.n_elites == self.n_members else self.elites
        mean, log_var, logit = self(observations, actions, members)
        drawn = mean if noise is None else mean + (0.5 * log_var).exp() * noise
        drawn = self.target_mean + self.target_std * drawn
        next_observations, rewards = observations + drawn[..., :-1], drawn[..., -1]
        terminated = (logit > 0) & self.terminates
        if self.reward_function is not None:
            rewards = self._ask(self.reward_function, observations, actions, next_observations).to(rewards)
        if self.termination_function is not None:
            terminated = self._ask(self.termination_function, observations, actions, next_observations).bool()
        return Imagined(next_observations, rewards, terminated)

    def _ask(self, function: Outcomes, observations: Tensor, actions: Tensor, then: Tensor) -> Tensor:
        """Calls a user's function of steps [E, B, ...] on one flat batch. -> [E, B]"""
        shape, taken = self.observation_space.shape or (), actions.reshape(-1, *(self.action_space.shape or ()))
        bounds: dict[str, Any] = {name: torch.as_tensor(n).to(taken) for name, n in self._numbers.items()}
        taken = stretched(taken, **bounds, library=torch)
        answer = function(observations.reshape(-1, *shape), taken, then.reshape(-1, *shape))
        if answer.numel() != len(taken):
            raise PolicyError(
                f"{getattr(function, '__name__', function)} must return one number for each of {len(taken)} rows, got "
                f"the shape {tuple(answer.shape)}."
            )
        return answer.reshape(actions.shape[:-1])
