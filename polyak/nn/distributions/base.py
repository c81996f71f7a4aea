"""The interfaces of action distributions and of the families that make them.

A :class:`Family` holds sizes and options. Applied to the outputs of a network for B states, it makes a
:class:`Distribution`, which is immutable: the distributions of a policy before and after an update can be compared.

Everything here is a plain tensor expression: no ``torch.distributions`` object is made and no branch looks at data, so
that each function can be traced and compiled.

Shape letters: B batch, A action dimensions, N classes, L latent features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from polyak.nn.errors import PolicyError


class Distribution(ABC):
    """The distributions of the actions in B states."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of ``actions``: [B]."""

    @abstractmethod
    def entropy(self) -> Tensor | None:
        """Entropy in nats: [B]; ``None`` where there is no closed form."""

    def tsallis_entropy(self, q: float) -> Tensor:
        """Tsallis entropy of index q over the whole action, see :mod:`polyak.ops.tsallis`: [B].

        Raises:
            PolicyError: it has no closed form.
        """
        raise PolicyError(f"the Tsallis entropy of a {type(self).__name__} has no closed form. Use entropy_index=1.")

    @abstractmethod
    def sample(self) -> Tensor:
        """Draws one action for each state; differentiable in the parameters where the action is continuous."""

    def sample_from(self, noise: Tensor) -> Tensor:
        """The action for each state, as a pure function of noise; :meth:`sample` is the same with newly drawn noise.

        Args:
            noise: [B, ...] from :meth:`Family.draw`.

        Raises:
            PolicyError: the distribution cannot sample from given noise.
        """
        raise PolicyError(
            f"{type(self).__name__} draws by itself. Define sample_from(noise), and draw(batch, ...) of its family."
        )

    @abstractmethod
    def mode(self) -> Tensor:
        """The likeliest action for each state (before squashing, if the distribution squashes)."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """KL divergence from self to ``other``, over the whole action: [B].

        Raises:
            PolicyError: the two are of different types.
        """

    def masked(self, masks: Tensor) -> Self:
        """Returns the same distributions without the forbidden choices.

        Args:
            masks: [B, M] bool, True where a choice is allowed, as :mod:`polyak.envs.masks` has them.

        Raises:
            PolicyError: there are no choices.
        """
        raise PolicyError(f"a {type(self).__name__} has no choices that masks could forbid.")

    def get_actions(self, deterministic: bool = False) -> Tensor:
        """:meth:`mode` if ``deterministic``, else :meth:`sample`."""
        return self.mode() if deterministic else self.sample()

    def sample_with_log_prob(self) -> tuple[Tensor, Tensor]:
        """Draws one action for each state; returns it with its log-density [B], computed as precisely as the
        distribution can."""
        actions = self.sample()
        return actions, self.log_prob(actions)


class Family(ABC):
    """Makes distributions of one kind from the outputs of a network."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of network outputs of a distribution."""

    def make_head(self, latent_dim: int) -> nn.Linear:
        """A new layer from latent features to these outputs."""
        return nn.Linear(latent_dim, self.n_outputs)

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The noise of one action in each of B states, for :meth:`Distribution.sample_from`: [B, ...] float32.

        Args:
            batch: B.
            device: where it is drawn; the CPU by default.
            generator: torch's global one by default.

        Raises:
            PolicyError: the distributions cannot sample from given noise.
        """
        raise PolicyError(f"distributions of {type(self).__name__} draw by themselves: use sample().")

    @abstractmethod
    def __call__(self, *parameters: Any, **named: Any) -> Distribution:
        """The distributions with these parameters, the outputs of the head first."""


def check_same_type(p: Distribution, q: Distribution) -> None:
    """Check that a KL divergence between two distributions is defined.

    Raises:
        PolicyError: they are of different types.
    """
    if type(p) is not type(q):
        raise PolicyError(
            f"the KL divergence needs two distributions of the same type, got {type(p).__name__} and "
            f"{type(q).__name__}."
        )
