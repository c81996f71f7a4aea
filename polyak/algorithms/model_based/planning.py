"""Planning with a learned model, by the cross-entropy method over action sequences.

Chua et al. 2018, arXiv:1805.12114 (PETS), section 5 and algorithm 1; the cross-entropy method is that of Botev et al.
2013, "The Cross-Entropy Method for Optimization", with normals truncated at two standard deviations.

Shapes: B states, I iterations, N candidates, H steps of a plan, A dimensions of an action, P particles of each
candidate, E elites of the model, S dimensions of an observation, D = S + 1.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithms.model_based.dynamics import DynamicsModel
from polyak.envs.spaces import get_action_dim
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.options import check_counts, check_keywords, keywords_of
from polyak.nn.policies.base import Decision, Noise, Policy, State, n_rows

Propagation = Literal["ts1", "tsinf"]
INITIAL_STD = 0.5
"""Initial standard deviation of every action of a plan, whose bounds are -1 and 1: as in the authors' code."""
_WITHIN = math.erf(2 / math.sqrt(2))
"""Probability of a normal variable within two standard deviations."""

# -- the cross-entropy method ------------------------------------------------------------------------------------------


def truncated_normal(uniform: Tensor) -> Tensor:
    """Maps uniform numbers in [0, 1) to a standard normal truncated at two standard deviations, by its inverse
    distribution."""
    return math.sqrt(2) * torch.erfinv(_WITHIN * (2 * uniform - 1))


def cross_entropy(
    value: Callable[[Tensor, int], Tensor], mean: Tensor, noise: Tensor, n_top: int, momentum: float
) -> Tensor:
    """Optimises a plan by the cross-entropy method: candidates are drawn around a mean, which moves to the best ones.

    Candidates are clipped to the bounds. The authors' code instead limits the standard deviation of a number to half
    its distance from the nearer bound, so that a plan that starts at a bound, as the rest of the previous plan may,
    cannot leave it.

    Args:
        value: ``(candidates [B, N, H, A], iteration) -> [B, N]``.
        mean: [B, H, A] in [-1, 1], of the first candidates, whose standard deviation is 0.5.
        noise: [B, I, N, H, A] truncated normal.
        n_top: number of best candidates.
        momentum: weight of the previous mean and variance, against those of the best candidates.

    Returns:
        the last mean [B, H, A].
    """
    var = torch.full_like(mean, INITIAL_STD**2)
    for i in range(noise.shape[1]):
        candidates = (mean.unsqueeze(1) + var.sqrt().unsqueeze(1) * noise[:, i]).clamp(-1, 1)
        top = value(candidates, i).topk(n_top, 1).indices
        best = candidates.gather(1, top[:, :, None, None].expand(-1, -1, *mean.shape[1:]))
        mean = torch.lerp(best.mean(1), mean, momentum)
        var = torch.lerp(best.var(1, correction=0), var, momentum)
    return mean


# -- the policy --------------------------------------------------------------------------------------------------------


class PlanningPolicy(Policy):
    """Acts by the first step of a plan, and starts the next plan from the rest of it.

    The rest is the policy's recurrent state, ``plan`` [B, H, A]; a new episode starts from zeros. All candidates of an
    iteration share their random numbers. Deterministic actions are planned with fixed random numbers, for every
    observation of a batch.

    Args:
        observation_space: a Box of real numbers.
        action_space: a Box with finite bounds.
        horizon: H.
        n_candidates: N.
        n_top: number of best candidates, whose mean and variance the next iteration uses.
        n_iterations: I.
        momentum: weight of the previous mean and variance, against those of the best candidates.
        n_particles: P, a multiple of the model's elites.
        propagation: ``"ts1"``: a particle changes its elite at each step; ``"tsinf"``: it keeps its elite.
        gamma: discount of one step.
        model_kwargs: further arguments of the :class:`~polyak.algorithms.model_based.dynamics.DynamicsModel`.

    Raises:
        PolicyError: unsupported spaces, or an argument out of range.
    """

    backend = "eager"  # batched matrix products are fastest in torch

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        horizon: int = 25,
        n_candidates: int = 400,
        n_top: int = 40,
        n_iterations: int = 5,
        momentum: float = 0.1,
        n_particles: int = 20,
        propagation: Propagation = "tsinf",
        gamma: float = 1.0,
        **model_kwargs: Any,
    ) -> None:
        super().__init__(observation_space, action_space, squash_output=True)
        if model_kwargs.get("memory") is not None:
            raise PolicyError(
                f"memory={model_kwargs['memory']!r}, but a model of the environment has none. Stack observations: "
                "polyak.envs.VecFrameStack."
            )
        check_keywords(type(self).__name__, model_kwargs, keywords_of(DynamicsModel))
        check_counts((DynamicsModel,), model_kwargs)
        self.model = DynamicsModel(observation_space, action_space, **model_kwargs)
        if n_particles % self.model.n_elites:
            raise PolicyError(
                f"n_particles={n_particles} must be a multiple of n_elites={self.model.n_elites}, so that each elite "
                "of the model advances as many particles as the others."
            )
        self.horizon, self.n_candidates, self.n_top, self.n_iterations = horizon, n_candidates, n_top, n_iterations
        self.momentum, self.n_particles, self.propagation, self.gamma = momentum, n_particles, propagation, gamma
        self.action_dim = get_action_dim(action_space)
        for name, part in self.draw_noise(1, torch.Generator().manual_seed(0)).items():
            self.register_buffer(f"fixed_{name}", part, persistent=False)  # for deterministic plans

    # -- acting --------------------------------------------------------------------------------------------------------

    def initial_memory(self, batch: int) -> State:
        return {"plan": torch.zeros(batch, self.horizon, self.action_dim, device=self.device)}

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        """Draws ``candidates`` [B, I, N, H, A] truncated normal, ``outcomes`` [B, I, P, H, D] standard normal,
        ``order`` [B, I, P, H] uniform, by which ``"ts1"`` assigns particles to elites."""
        more: dict[str, Any] = {"device": self.device, "generator": generator}
        iterated = batch, self.n_iterations
        particles = (*iterated, self.n_particles, self.horizon)
        candidates = torch.rand(*iterated, self.n_candidates, self.horizon, self.action_dim, **more)
        return {
            "candidates": truncated_normal(candidates),
            "outcomes": torch.randn(*particles, self.model.n_observed + 1, **more),
            **({"order": torch.rand(*particles, **more)} if self.propagation == "ts1" else {}),
        }

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions [B, ...] in [-1, 1] of plans that start from zeros."""
        return self.decide(obs, None if deterministic else self.draw_noise(n_rows(obs))).actions

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        """Plans from observations [B, ...]; see :meth:`Policy.decide`."""
        if masks is not None:
            return super().decide(obs, noise, state, masks)
        assert isinstance(obs, Tensor)
        seen = obs.flatten(1).float()
        given = self._fixed(seen.shape[0]) if noise is None else noise
        plan = cross_entropy(
            lambda actions, i: self.values(seen, actions, {name: part[:, i] for name, part in given.items()}),
            (state or self.initial_memory(seen.shape[0]))["plan"],
            given["candidates"],
            self.n_top,
            self.momentum,
        )
        rest = torch.cat([plan[:, 1:], torch.zeros_like(plan[:, :1])], 1)
        return Decision(plan[:, 0].reshape(-1, *self.codec.shape), state={"plan": rest})

    def _fixed(self, rows: int) -> Noise:
        """Returns the noise of deterministic plans, the same for all rows."""
        names = "candidates", "outcomes", *(("order",) if self.propagation == "ts1" else ())
        held = {name: self.get_buffer(f"fixed_{name}") for name in names}
        return {name: part.expand(rows, *part.shape[1:]) for name, part in held.items()}

    @torch.no_grad()
    def values(self, seen: Tensor, actions: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """Returns the discounted rewards of plans until termination, averaged over particles; -inf for plans with
        non-finite rewards.

        Args:
            seen: [B, S].
            actions: [B, N, H, A].
            noise: ``outcomes`` [B, P, H, D], and for ``"ts1"`` ``order`` [B, P, H].

        Returns:
            [B, N].
        """
        plans = actions.permute(2, 0, 1, 3)[:, :, :, None].expand(-1, -1, -1, self.n_particles, -1)  # [H, B, N, P, A]
        drawn = noise["outcomes"].movedim(2, 0)[:, :, None].expand(*plans.shape[:-1], -1)
        states = self._dealt(seen[:, None, None].expand(*plans.shape[1:-1], -1))
        alive = torch.ones_like(states[..., :1])
        total, discount = torch.zeros_like(alive), 1.0
        for t, (acted, chance) in enumerate(zip(self._dealt(plans), self._dealt(drawn), strict=True)):
            if self.propagation == "ts1":
                order = noise["order"][:, None, :, t, None].argsort(2)
                states, alive = (self._dealt_again(part, order, plans.shape[1:-1]) for part in (states, alive))
            states, rewards, terminated = self.model.advance(states, acted, chance)
            total = total + discount * alive * rewards.unsqueeze(-1)
            alive, discount = alive * ~terminated.unsqueeze(-1), discount * self.gamma
        found = self._gathered(total, plans.shape[1:-1]).mean((2, 3))
        return found.nan_to_num(nan=-math.inf, neginf=-math.inf, posinf=-math.inf)

    def _dealt(self, particles: Tensor) -> Tensor:
        """Groups particles [..., B, N, P, X] by the elites that advance them: [..., E, B N P / E, X]"""
        return particles.unflatten(-2, (self.model.n_elites, -1)).movedim(-3, -5).flatten(-4, -2)

    def _gathered(self, dealt: Tensor, shape: torch.Size) -> Tensor:
        """Inverts :meth:`_dealt`, [E, B N P / E, X] -> [B, N, P, X]"""
        return dealt.unflatten(1, (*shape[:2], -1)).movedim(0, 2).flatten(2, 3)

    def _dealt_again(self, dealt: Tensor, order: Tensor, shape: torch.Size) -> Tensor:
        """Regroups the particles of every plan in another order [B, 1, P, 1]."""
        gathered = self._gathered(dealt, shape)
        return self._dealt(gathered.gather(2, order.expand_as(gathered)))
