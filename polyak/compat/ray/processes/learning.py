"""How a model here learns from the fragments that runners elsewhere have brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from polyak.compat.ray.processes.elsewhere import MasksElsewhere
from polyak.compat.ray.processes.experience import Lanes, steps_in
from polyak.compat.ray.processes.fragments import Fragment, given_to, joined
from polyak.compat.ray.rollouts import WholeReplay, WholeRollouts
from polyak.kinds.asynchronous import AsynchronousAlgorithm
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.seeding import rng_state, set_rng_state


class Learning(Protocol):
    """What is done with fragments."""

    ahead: bool
    """Whether runners continue during updates."""

    def request(self) -> tuple[Any, ...]:
        """What a runner is sent besides the weights."""
        ...

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        """Learn from one fragment for each runner that there should be. True: runners should get the new weights."""
        ...


class FromRollouts:
    """A batch is what the runners have brought, side by side.

    Args:
        model: what learns.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.ahead = model, isinstance(model, AsynchronousAlgorithm)

    def request(self) -> tuple[Any, ...]:
        """Nothing."""
        return ()

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        model = self.model
        model.num_timesteps += sum(fragment.made for fragment in fragments)
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        with model._split.update:
            given_to(model, joined(fragments, isinstance(model, WholeRollouts)))
            model.train()
        if not self.ahead:
            return True
        due = bool(model._since_broadcast >= model.broadcast_interval)
        if due:
            model._since_broadcast = 0
        return due


class FromReplay:
    """Fragments go into the model's replay buffer, side by side; then there are as many gradient steps as they call
    for.

    With a seed, runners and learner take turns; and if there is one runner, it draws from the random numbers of this
    process, so that it does what would have been done here.

    Args:
        model: what learns.
        runners: how many fragments stand side by side.
    """

    def __init__(self, model: Any, runners: int) -> None:
        self.model, self.ahead = model, model.seed is None
        self._lanes = Lanes(runners)
        self._one = runners == 1 and not self.ahead

    def request(self) -> tuple[Any, ...]:
        """Steps so far, and random numbers."""
        return self.model.num_timesteps, rng_state() if self._one else None

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        self._note_masks(fragments[0])
        model, buffer = self.model, self.model.replay_buffer
        if self._one:
            set_rng_state(*fragments[-1].streams)
        whole = isinstance(model, WholeReplay)
        if not whole:
            fragments, cut = self._lanes.placed(fragments)
            width = model.n_envs // len(fragments)
            if cut:
                buffer.cut_episodes([block * width + env for block in cut for env in range(width)])
        together = joined(fragments, whole)
        model.num_timesteps += together.dropped
        for step in steps_in(together):
            model.num_timesteps += model.n_envs
            with model._split.copy:
                buffer.record(step)
            model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
            model._on_step()
            model._episode_num += int(step.dones.sum())
        if model.num_timesteps <= model.learning_starts or not buffer.can_sample():
            return False
        with model._split.update:
            model.train(gradient_steps=model.gradient_steps, batch_size=model.batch_size)
        return True

    def _note_masks(self, fragment: Fragment) -> None:
        """Let the buffer keep masks as soon as the runners, which see the environments, bring some."""
        model, masks = self.model, fragment.columns["extras"].get("next_masks")
        if masks is None or model.runner.env.masked:
            return
        model._use_masks(MasksElsewhere(model.n_envs, masks.shape[-1]))


def learning_of(model: Any, runners: int) -> Learning:
    """The way of a model's kind."""
    return FromReplay(model, runners) if isinstance(model, OffPolicyAlgorithm) else FromRollouts(model)
