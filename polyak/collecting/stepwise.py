"""Values and log-probabilities of each step during collection, as in Stable-Baselines3.

The learner evaluates whole rollouts. Three users need the values of a step before the next one: callbacks that read
``locals["values"]``, rollout buffers that override ``add`` or ``compute_returns_and_advantage``, and policies whose own
``forward`` returns other values than ``evaluate_actions``.

Shape letters: N environments.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.collecting.actor import Actor
from polyak.collecting.rollout import RolloutWriter
from polyak.collecting.time_split import Stopwatch
from polyak.experience import Experience, RolloutBuffer
from polyak.experience.rollout_buffer import states_after
from polyak.experience.step import Step
from polyak.learning.rollout_learner import RolloutLearner
from polyak.nn.policies.base import Policy


def with_values(step: Step, learner: RolloutLearner, policy: Policy) -> Step:
    """Returns a step with ``values`` and ``log_probs`` [N] among its extras, computed unless the policy has added them."""
    if "values" in step.extras:
        return step
    observations = policy.obs_to_tensor(step.observations)[0]
    actions = torch.as_tensor(step.actions, device=policy.device)
    columns = {k: torch.as_tensor(v, device=policy.device) for k, v in step.extras.items() if k != "next_masks"}
    found = learner.eagerly(learner.evaluation, (observations, actions, columns), policy)
    values, log_probs = found["values"].numpy(force=True), found["log_probs"].numpy(force=True)
    return step._replace(extras={**step.extras, "values": values, "log_probs": log_probs})


def locals_of(step: Step, learner: RolloutLearner, policy: Policy, watch: Stopwatch) -> dict[str, Any]:
    """Returns the learner's part of callbacks' ``self.locals`` for a step.

    Args:
        step: about to be stored.
        learner: evaluates it.
        policy: the behaviour policy.
        watch: measures the time of this.
    """
    with watch:
        extras = with_values(step, learner, policy).extras
        values, log_probs = (torch.from_numpy(extras[name]) for name in ("values", "log_probs"))
        tensors = policy.obs_to_tensor(step.observations)[0]
    return {"obs_tensor": tensors, "values": values[:, None], "log_probs": log_probs}


class StepwiseWriter(RolloutWriter):
    """Stores each step with its value, and with the values of the final states of truncated episodes.

    Args:
        buffer: the rollout buffer.
        actor: makes the steps.
        learner: evaluates them.
        steps: see :class:`~polyak.collecting.rollout.RolloutWriter`.
    """

    def __init__(self, buffer: RolloutBuffer, actor: Actor, learner: RolloutLearner, steps: int | None = None) -> None:
        super().__init__(buffer, actor, steps)
        self.learner = learner

    def ready(self, step: Step) -> Step:
        return with_values(step, self.learner, self.actor.policy)

    def record(self, step: Step) -> None:
        self._last = step = self.ready(step)
        final_values = None
        if step.ended and (cut := step.truncated).any():
            states = states_after(step, self.actor.memory)[cut]
            final_values = np.zeros(len(cut), np.float32)
            final_values[cut] = self._values(states, self.actor.policy).numpy(force=True)
        self.buffer.record(step, step.extras["values"], step.extras["log_probs"], final_values)

    def _values(self, states: Experience, policy: Any) -> Tensor:
        return self.learner.values_of(self.buffer.tensors(states), policy)

    def evaluate(self, learner: RolloutLearner, runner: Any, policy: Any) -> Tensor:
        """Returns values [N, 1] of the observations after the last step; all other values are stored already."""
        return self._values(self.following(runner)[0], policy)[:, None].cpu()

    def last(self) -> Step:
        return self._last
