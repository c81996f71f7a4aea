"""Planning with a known model: sweeps over all states instead of experience."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithms.tabular.table import Solver, TableAlgorithm
from polyak.callbacks.callback import BaseCallback
from polyak.envs import VecEnv
from polyak.envs.tabular.process import FiniteProcess
from polyak.hyperparameters.declaration import NonNegative
from polyak.hyperparameters.held import Held
from polyak.loops.clock import write_logs
from polyak.loops.training import Loop
from polyak.ops.dynamic_programming import action_values, policy_values
from polyak.parts.part import KeptAttributes, MadeOf


class KnownModel:
    """A process as tensors; terminal states have value 0. S states, A actions, O outcomes.

    Args:
        process: the process.
    """

    def __init__(self, process: FiniteProcess) -> None:
        over = process.terminal
        continuing = process.chances * ~process.ends * ~over[process.pairs // process.n_actions]
        rewards = np.where(over[:, None], 0.0, process.mean_rewards)
        self.over = torch.from_numpy(over)
        self.legal = torch.from_numpy(process.legal)
        self.mean_rewards = torch.from_numpy(rewards)
        self.outcomes = tuple(map(torch.from_numpy, (process.pairs, continuing, process.successors)))

    def action_values(self, values: Tensor, gamma: float) -> Tensor:
        """Returns action values [S, A] from state values [S]."""
        pairs, continuing, successors = self.outcomes
        return action_values(values, self.mean_rewards, pairs, continuing, successors, gamma)

    def policy_values(self, policy: Tensor, rewards: Tensor, gamma: float) -> Tensor:
        """Returns the exact values of a policy with given rewards: both [S, A] -> [S]"""
        pairs, continuing, successors = self.outcomes
        return policy_values(policy, rewards, pairs, continuing, successors, gamma)


class Planner(Solver):
    """Sweeps over all states of a known model.

    Args:
        model: the algorithm.
    """

    converged = False
    """Whether the last sweep changed values by no more than the tolerance."""

    def meet(self, env: VecEnv) -> None:
        self.process = FiniteProcess.of(env.get_attr("unwrapped", 0)[0])
        self.known = KnownModel(self.process)
        ours, theirs = self.model.legal, self.known.legal
        if ours.shape != theirs.shape:
            raise ValueError(
                f"env={env} has a table P of {list(theirs.shape)} states and actions, but spaces of "
                f"{list(ours.shape)}. Plan without the wrapper that changes them."
            )
        ours[...] = theirs

    def sweep(self) -> float:
        """Improve ``model.q``; returns the largest change of values."""
        raise NotImplementedError

    @property
    def start_value(self) -> float:
        """Mean value of initial states."""
        return float(self.process.starts @ self.model.values)


class Sweeps:
    """Sweeps over all states until values converge.

    Args:
        model: the algorithm.
        callback: called after every sweep; may stop training.
        log_interval: sweeps between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval = model, callback, log_interval
        self.planner: Planner = model.solver

    def iterate(self) -> bool:
        """Make one sweep. Returns False if values have converged, or a callback stops training."""
        model, planner, clock, callback = self.model, self.planner, self.model.clock, self.callback
        with model._split.update:
            change = planner.sweep()
        clock.steps += 1
        clock.updates += 1
        planner.converged = bool(change <= model.tolerance)
        clock.tick()
        model.logger.record("train/change", change)
        model.logger.record("train/start_value", planner.start_value)
        if self.log_interval is not None and clock.steps % self.log_interval == 0:
            write_logs(model, {"iterations": clock.updates})
        if callback.needs_locals:
            callback.update_locals(model._callback_locals(callback=callback, change=change))
        return (callback.is_idle or callback.on_step()) and not planner.converged


@dataclass(eq=False, repr=False)
class Planning(TableAlgorithm):
    """Algorithms that plan with a known model. A step of ``learn`` is a sweep over all states; it ends at convergence.
    A :class:`Planner` is their solver."""

    _: KW_ONLY
    tolerance: NonNegative = 1e-10
    """Change of values below which planning has converged."""

    loop: ClassVar[Callable[..., Loop]] = Sweeps
    made_of: ClassVar[MadeOf] = {"kept": partial(KeptAttributes, names={"converged": "converged"})}
    converged = Held[bool]("solver.converged")
    """Whether planning has converged."""
    process = Held[FiniteProcess]("solver.process")
    """The known model."""
    start_value = Held[float]("solver.start_value")
    """Mean value of initial states."""
