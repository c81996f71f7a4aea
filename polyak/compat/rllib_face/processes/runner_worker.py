"""A runner with the environments of a config. It does not depend on the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from polyak.collecting.runner import Runner
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.environments import Spaces
from polyak.compat.rllib_face.processes.acting import begun
from polyak.compat.rllib_face.rollouts import Rounds
from polyak.distributed.runner_process import Chunk, ChunkOfSteps, Order, RunnerProcess
from polyak.envs.nested_spaces import is_composed
from polyak.experience.step import Step


class RunnerOfConfig(RunnerProcess):
    """Collects experience with given weights, in the environments of a config.

    Args:
        config: the config.
        index: number of the runner, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        self.config, self.worker_index = config, index
        env = begun(config, self, True, index)
        self._spaces = Spaces.of(env)
        super().__init__(lambda: env, index - 1, config.seed, alone=False)
        self._rounds = Rounds(env.num_envs) if config.batch_mode == "complete_episodes" else None

    def spaces(self) -> Spaces:
        """Returns the spaces of its environments."""
        return self._spaces

    def _collected(self, order: Order) -> Chunk:
        if self._rounds is None:
            return super()._collected(order)
        rounds, runner, rows = self._rounds, cast(Runner, self.runner), list[Step]()
        dropped = steps = 0
        for _ in range(order.steps):
            while not rounds.is_over:
                self._follow(order, steps)
                steps += 1
                rows += rounds.add(runner.step())
            dropped += rounds.next(runner)
        chunk = ChunkOfSteps(len(rows), is_composed(self.rows.action_space))
        for row in rows:
            chunk.add(row, None)
        allowed = None if runner.allowed is None else runner.allowed[:1]
        return chunk.done(rows[-1].next_observations, allowed)._replace(dropped=dropped)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Returns the result of a function of this runner, which has ``env``, ``config`` and ``worker_index``."""
        return function(self)
