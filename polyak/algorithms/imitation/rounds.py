"""Rounds of adversarial imitation: the generator acts and learns, then the reward network learns from its steps."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak.arrays import mapped
from polyak.callbacks.callback import BaseCallback, LoopLocals
from polyak.envs.spaces import maybe_transpose
from polyak.experience import EpisodeBuffer, RolloutBuffer
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.loops.training import Loop, engine_checks
from polyak.loops.updates import record_means
from polyak.schedules import value_of
from polyak.warning import advise

OFF_POLICY_ROUND = 500
"""Environment steps between two rounds of a generator without rollouts."""


class Comparison(NamedTuple):
    """A minibatch: B / 2 demonstrations, then B / 2 steps of the generator."""

    observations: Any
    """[B, ...] raw, or a dict of these."""
    actions: Tensor
    """[B, ...] in the environment's units."""
    next_observations: Any
    """[B, ...] raw, or a dict of these; None if they are not used."""
    terminated: Tensor
    """[B] float32, 1 if the next state is terminal."""
    expert: Tensor
    """[B] float32, 1 for demonstrations."""
    log_probs: Tensor
    """[B] log-densities of the actions under the present generator, if they are needed; otherwise 0."""


class ImitationLoop:
    """Lets the generator act and learn, and trains the reward network in rounds.

    Args:
        model: owns the generator.
        callback: the model's.
        log_interval: the generator's.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, generator = model, model.generator
        if isinstance(generator, OnPolicyAlgorithm):
            generator.rollouts.rewards_follow = partial(settle, model)
        self.generating: Loop = type(generator).loop(generator, Relay(model, callback), log_interval)
        self.between = engine_checks(model)

    def iterate(self) -> bool:
        """Run an iteration of the generator, and a round if one is due. Returns False if a callback stops training."""
        model, clock = self.model, self.model.clock
        going = self.generating.iterate()
        follow(model)
        if going and clock.steps - model._round_began >= model._round:
            model._round_began = clock.steps
            self.improve()
        if going:
            for check in self.between:
                check()
        return going

    def improve(self) -> None:
        """Run a round: gradient steps of the reward network, new rewards of stored steps, and logs."""
        model = self.model
        # The learning rate is logged under a name that the generator does not use.
        rate = value_of("learning_rate", model.lr_schedule, model.clock.remaining)
        model.learner.set(learning_rate=rate)
        metrics: dict[str, list[Tensor]] = {}
        for _ in range(model.n_disc_updates_per_round):
            with model._split.sample:
                batch = comparison(model)
            with model._split.update:
                update = model.learner.update(batch)
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
        model.clock.updates += model.n_disc_updates_per_round
        if (buffer := getattr(model.generator, "replay_buffer", None)) is not None:
            with model._split.update:
                buffer.replace_rewards(partial(rewards_of_stored, model))
        record_means(metrics, model.logger, model.host)
        warn_of_lengths(model)
        model.logger.record("train/disc_learning_rate", rate)
        model.logger.record("train/disc_n_updates", model.clock.updates, exclude="tensorboard")
        if ended := model._rewarding.ended:
            model.logger.record("rollout/ep_learned_rew_mean", float(np.mean(ended)))
            ended.clear()


class Relay(BaseCallback):
    """Forwards the generator's steps to the callbacks of the model that owns it.

    Args:
        owner: the model that owns the generator.
        callback: the owner's.
    """

    def __init__(self, owner: Any, callback: BaseCallback) -> None:
        super().__init__()
        self.owner, self.callback = owner, callback

    @property
    def needs_locals(self) -> bool:
        return self.callback.needs_locals

    @property
    def is_idle(self) -> bool:
        return self.callback.is_idle

    def update_locals(self, locals_: dict[str, Any]) -> None:
        published = locals_ if isinstance(locals_, LoopLocals) else LoopLocals(locals_)
        self.callback.update_locals(published.also({"self": self.owner}))

    def on_rollout_start(self) -> None:
        rewarding = self.owner._rewarding
        rewarding.late, rewarding.waiting = self.rewards_may_follow(), []
        self.callback.on_rollout_start()

    def rewards_may_follow(self) -> bool:
        """Whether no callback reads the rewards of single steps, so that those of a rollout can be computed at once,
        with equal results, since the networks do not change during the rollout."""
        generator = self.owner.generator
        if not isinstance(generator, OnPolicyAlgorithm) or isinstance(generator.rollout_buffer, EpisodeBuffer):
            return False
        plain = generator.env is self.owner._rewarding and generator.rollout_buffer.values_may_follow
        return plain and not self.callback.needs_locals

    def on_rollout_end(self) -> None:
        follow(self.owner)
        self.callback.on_rollout_end()

    def on_step(self) -> bool:
        follow(self.owner)
        return self.callback.on_step()

    def _on_step(self) -> bool:
        return True


def follow(model: Any) -> None:
    """Copy the counters of a model's generator."""
    ours, theirs = model.clock, model.generator.clock
    ours.steps, ours.episodes, ours.remaining = theirs.steps, theirs.episodes, theirs.remaining


def settle(model: Any, buffer: RolloutBuffer) -> None:
    """Fill in the rewards of the latest steps of a generator's rollout."""
    if len(rewards := model._rewarding.settle()):
        buffer.rewards[buffer.pos - len(rewards) : buffer.pos] = rewards


def rewards_of_stored(model: Any, observations: Any, actions: np.ndarray, then: Any, terminated: Any) -> np.ndarray:
    """Returns the rewards [B] of rows of a replay buffer, whose actions are in the network's units."""
    codec = model.policy.codec
    taken = codec.to_env(actions.reshape(-1, *codec.shape))
    found: np.ndarray = model._rewards(of_space(model, observations), taken, of_space(model, then), terminated)
    return found


def comparison(model: Any) -> Comparison:
    """Returns a minibatch with equal numbers of demonstrations and generator steps."""
    size, network, device = model.demo_batch_size, model.learner.policy, model.device
    shown = model.demonstrations.transitions(torch.randint(len(model.demonstrations), (size,)).numpy())
    filled = model.experience.size() * model.n_envs
    made = model.experience.storage.read(torch.randint(filled, (size,)).numpy())
    seen = joined(of_space(model, shown.observations), of_space(model, made["observations"]))
    shape = (-1, *(model.action_space.shape or ()))
    actions = np.concatenate([np.reshape(shown.actions, shape), np.reshape(made["actions"], shape)])
    ends = np.concatenate([shown.terminations, made["dones"] * (1 - made["timeouts"])]).astype(np.float32)
    then = None
    if network.needs_next:
        then = joined(of_space(model, shown.next_observations), of_space(model, made["next_observations"]))
        then = network.obs_to_tensor(then)[0]
    return Comparison(
        network.obs_to_tensor(seen)[0],
        torch.as_tensor(actions, device=device),
        then,
        torch.as_tensor(ends, device=device),
        torch.arange(2 * size, device=device).lt(size).float(),
        model._log_probs(seen, actions).to(device),
    )


def of_space(model: Any, observations: Any) -> Any:
    """Reshapes observations [B, ...] to the shape of the model's observation space."""
    space = model.observation_space
    if isinstance(observations, dict):
        return {k: np.reshape(observations[k], (-1, *(s.shape or ()))) for k, s in space.spaces.items()}
    observations = maybe_transpose(observations, space)
    return np.reshape(observations, (-1, *(space.shape or ())))


def joined(*observations: Any) -> Any:
    """Concatenates batches of observations."""
    return mapped(lambda *parts: np.concatenate(parts), *observations)


def warn_of_lengths(model: Any) -> None:
    """Warn if episodes have different lengths: a reward of constant sign is then maximised by length alone."""
    demonstrations = model.demonstrations
    shown = set(demonstrations.lengths[demonstrations.terminated].tolist())
    met = {int(episode["l"]) for episode in model.ep_info_buffer}
    for whose, lengths in (("demonstrated episodes", shown), ("the generator's episodes", met)):
        if len(lengths) > 1:
            advise(
                "episodes of varying length",
                f"{type(model).__name__}: {whose} last from {min(lengths)} to {max(lengths)} steps. Length alone "
                "can earn the learned reward, so a good score may prove little (arXiv:1809.02925). Wrap the "
                "environment in polyak.envs.FixedHorizon(env, steps), for the demonstrations too.",
            )
