"""Acting for environments that speak tensors: observations in, actions out, on one device.

Shape letters: N environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from polyak.collecting.actor import Actor
from polyak.collecting.exploration import Exploration
from polyak.collecting.runner import Acted
from polyak.collecting.tensors.exploration import exploring_in_tensors
from polyak.nn.export.actions import EnvironmentActions
from polyak.nn.policies.base import Policy, n_rows


class TensorActor(Actor):
    """An :class:`~polyak.collecting.actor.Actor` whose observations, actions and masks are tensors.

    It reads no value of them, so that the host never waits for the device.

    Args:
        policy: chooses; it has no recurrent state.
        exploration: what is done to its actions, by name, in the order in which it is asked.
    """

    def explore(self, exploration: Mapping[str, Exploration]) -> None:
        """Explore in another way from now on.

        Raises:
            TypeError: there is no such exploration in tensors.
        """
        found = {name: exploring_in_tensors(part, self.policy) for name, part in exploration.items()}
        if missing := [type(exploration[name]).__name__ for name, part in found.items() if part is None]:
            raise TypeError(f"exploration: there is no {missing[0]} in tensors.")
        super().explore({name: part for name, part in found.items() if part is not None})

    def adopt(self, policy: Policy) -> None:
        super().adopt(policy)
        self._to_env = EnvironmentActions(policy.codec).to(policy.device)

    def prepare(self, observations: Any) -> None:
        self.policy.set_training_mode(False)

    @torch.no_grad()
    def act(self, observations: Any, episode_starts: Any = None, masks: Any = None) -> Acted:
        actions: Any = None
        extras: dict[str, Any] = {}
        for before in self._before:
            if (actions := before(self.policy, episode_starts, masks)) is not None:
                break
        if actions is None:
            noise = self.policy.draw_noise(n_rows(observations))
            outcome = self.policy.decide(observations, noise, None, masks)
            actions, extras = outcome.actions, dict(outcome.extras)
        for after in self._after:
            actions = after(actions)
        return Acted(self._to_env(actions)[0], actions, extras)
