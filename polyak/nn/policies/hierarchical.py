"""A two-level policy: the higher level sets goals that the lower one pursues (HIRO, arXiv:1805.08296).

Shapes: B rows, G entries of a goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import Activation
from polyak.nn.policies.base import Decision, Noise, Policy, State, n_rows, shaped
from polyak.nn.policies.continuous import ContinuousPolicy

ACHIEVED, GOAL = "achieved_goal", "goal"
"""The entry of a Dict observation that goals are about; the column of the goal under which a step was made."""
TARGET, ELAPSED = "target", "elapsed"
"""The recurrent state: where the goal leads, and for how many steps it has been pursued."""


class HierarchicalPolicy(Policy):
    """A higher level that chooses a goal every c steps, and a lower level that chooses actions by observation and goal.

    A goal is a change of the position phi(s), some entries of the observation. From step to step it becomes what is
    left of it, ``h(s, g, s') = phi(s) + g - phi(s')``. The target ``phi(s) + g`` and the number of steps since the goal
    was chosen are the policy's recurrent state.

    Args:
        observation_space: what both levels read: a Box of one dimension, or a Dict with ``"achieved_goal"``, which is
            the position then.
        action_space: a Box of finite bounds.
        goal_steps: c.
        goal_range: the largest change of each entry that a goal asks for, a number or one for each, in the units of the
            observations that the policy reads.
        goal_entries: positions in the vector of those entries of the observation that goals are about; ``None``: all.
        goal_noise: standard deviation of the noise in goals, in shares of ``goal_range``, where actions are not
            deterministic.
        net_arch: hidden widths of actor and critics of both levels, as of
            :class:`~polyak.nn.policies.continuous.ContinuousPolicy`.
        activation_fn: follows every hidden layer.
        n_critics: critics of each level.
        **options: see :class:`~polyak.nn.policies.base.Policy`. The features extractor is that of the higher level; the
            lower one reads the parts of a Dict as they are, the goal among them.

    Raises:
        PolicyError: observations without such a vector, or an argument out of range.
    """

    fixed = frozenset({"squash_output"})
    goal_range: Tensor
    """[G]"""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        *,
        goal_steps: int = 10,
        goal_range: float | Sequence[float] = 1.0,
        goal_entries: Sequence[int] | None = None,
        goal_noise: float = 0.2,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.ReLU,
        n_critics: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, squash_output=True, **options)
        self.goal_steps, self.goal_noise = goal_steps, goal_noise
        self.entries = _entries(observation_space, goal_entries)
        size = len(self.entries)
        largest = np.broadcast_to(np.asarray(goal_range, np.float32), np.shape(goal_range) or (size,))
        if largest.shape != (size,):
            raise PolicyError(
                f"goal_range={goal_range!r} has {largest.size} numbers, and goals have {size} entries. Give one "
                f"number, or {size} of them."
            )
        self.register_buffer("goal_range", torch.from_numpy(largest.copy()), persistent=False)
        self.stores = {GOAL: (size,)}
        goals = spaces.Box(-largest, largest, dtype=np.float32)
        parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"here": observation_space}
        if GOAL in parts:
            raise PolicyError(f"the lower level reads its goal beside {observation_space}: rename the entry {GOAL!r}.")
        of_both: dict[str, Any] = {
            "actor": "deterministic",
            "net_arch": net_arch,
            "activation_fn": activation_fn,
            "n_critics": n_critics,
            "normalize_images": self.normalize_images,
        }
        of_features: dict[str, Any] = {
            "features_extractor_class": self.features_extractor_class,
            "features_extractor_kwargs": self.features_extractor_kwargs,
        }
        self.high = ContinuousPolicy(observation_space, goals, **of_both, **of_features)
        self.low = ContinuousPolicy(spaces.Dict({**parts, GOAL: goals}), action_space, **of_both)

    # --- goals --------------------------------------------------------------------------------------------------------

    def position(self, obs: Obs) -> Tensor:
        """Returns the position phi(s) [B, G], in which goals are changes, of observations [B, ...]."""
        part: Any = obs[ACHIEVED] if isinstance(obs, dict) else obs
        return part.float() if len(self.entries) == part.shape[-1] else part[..., self.entries].float()

    def beside(self, obs: Obs, goals: Tensor) -> Obs:
        """Joins observations and goals [B, G] to the observations of the lower level."""
        return {**(obs if isinstance(obs, dict) else {"here": obs}), GOAL: goals}

    # --- acting -------------------------------------------------------------------------------------------------------

    def initial_memory(self, batch: int) -> State:
        nothing = torch.zeros(batch, len(self.entries), device=self.device)
        return {TARGET: nothing, ELAPSED: torch.zeros(batch, dtype=torch.int64, device=self.device)}

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        drawn = torch.randn(batch, len(self.entries), device=self.device, generator=generator)
        return {"goals": drawn * self.goal_noise}

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in [-1, 1] at the first step of an episode."""
        return self.decide(obs, None if deterministic else self.draw_noise(n_rows(obs))).actions

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        """See :meth:`Policy.decide`; the goal [B, G] under which the actions were chosen is among the columns."""
        if masks is not None:
            return super().decide(obs, noise, state, masks)
        state = self.initial_memory(n_rows(obs)) if state is None else state
        here, chosen = self.position(obs), self.high.actor(obs)
        if noise:
            chosen = (chosen + noise["goals"]).clamp(-1, 1)
        begins = (state[ELAPSED] == 0).unsqueeze(1)
        goals = torch.where(begins, chosen * self.goal_range, state[TARGET] - here)
        actions = self.low.actor(self.beside(obs, goals))
        then = {TARGET: here + goals, ELAPSED: (state[ELAPSED] + 1) % self.goal_steps}
        return Decision(shaped(actions, self.codec.shape), {GOAL: goals}, then)


def _entries(space: spaces.Space, entries: Sequence[int] | None) -> list[int]:
    """Returns the positions in a vector of the entries in which goals are changes.

    Raises:
        PolicyError: there is no vector, or it has no such entries.
    """
    part = space.spaces.get(ACHIEVED) if isinstance(space, spaces.Dict) else space
    if not isinstance(part, spaces.Box | spaces.MultiBinary) or len(part.shape) != 1:
        raise PolicyError(
            f"goals are changes of a vector, and the observation space {space} has none: images and numbers of states "
            f"are none. Use a Box of one dimension, or a Dict with a vector {ACHIEVED!r}."
        )
    size = part.shape[0]
    chosen = list(range(size)) if entries is None else [int(entry) for entry in entries]
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen} <= {*range(size)}:
        raise PolicyError(f"goal_entries={entries!r} must be different numbers in [0, {size - 1}], one at least.")
    return chosen
