"""On-policy learning: roll out, estimate advantages, make a few passes over the rollout, forget it."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from polyak.core.deep import DeepAlgorithm
from polyak.core.hyperparameters import Count, Fraction, NonNegative
from polyak.core.interaction import Interaction
from polyak.core.learner import Learner, Metrics
from polyak.core.runner import Observations, Step
from polyak.core.watching.callbacks import BaseCallback
from polyak.data import RolloutBuffer
from polyak.data.batch import TensorObs
from polyak.envs import VecEnv
from polyak.nn.fast.precision import products_in
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.ops.policy_gradient import normalized

_EVALUATION_ROWS = 1024
"""Rows of a rollout evaluated at once: enough to be fast, few enough for the activations of images to fit."""
_SMALL_ROLLOUT = 256
"""Rows of a rollout up to which evaluating it is mostly overhead, so that a program does it in a fraction of the
time; with more rows it gains less than 1 % of a training, which building one is not worth."""


class OnPolicyLearner(Learner):
    """A learner with a stochastic actor and a value function, which also judges rollouts."""

    policy: ActorCriticPolicy

    def evaluate(self, batch: tuple[TensorObs, Tensor]) -> Metrics:
        """``values`` and ``log_prob`` [B] of observations [B, ...] and the actions [B, ...] taken there."""
        results: Metrics = self.run(self.evaluation, batch)
        return results

    @torch.no_grad()
    def evaluation(self, batch: tuple[TensorObs, Tensor]) -> Metrics:
        values, log_prob, _ = self.policy.evaluate_actions(*batch)
        return {"values": values.flatten(), "log_prob": log_prob}

    def normalized(self, advantages: Tensor) -> Tensor:
        """Advantages with mean 0 and standard deviation 1 over the minibatches of all learners. [B] -> [B]"""
        if self.group is None:
            return normalized(advantages)
        x = advantages.double()  # in which sums of squares lose nothing
        moments = torch.stack([torch.ones_like(x).sum(), x.sum(), x.square().sum()])
        rows, total, squares = self.group.sum(moments).unbind()
        mean = total / rows
        deviation = ((squares - rows * mean.square()).clamp(min=0) / (rows - 1)).sqrt()
        return ((x - mean) / (deviation + 1e-8)).to(advantages.dtype)


@dataclass(eq=False, repr=False)
class OnPolicyAlgorithm(Interaction, DeepAlgorithm):
    """Algorithms that learn from fresh rollouts of their own stochastic policy."""

    _: KW_ONLY
    n_steps: Count = 2048
    """Steps per environment in one rollout."""
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    gae_lambda: Fraction = 0.95
    """Trace decay of generalised advantage estimation, in [0, 1]: 0 is one-step TD, 1 Monte Carlo."""
    ent_coef: NonNegative = 0.0
    """Weight of the entropy bonus."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss."""
    max_grad_norm: NonNegative = 0.5
    """Largest global norm of the gradient; beyond it the gradient is scaled down."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and standard deviation 1 within each minibatch."""
    use_sde: bool = False
    """Explore with noise that depends on the state (gSDE, arXiv:2005.05719) instead of independent Gaussian noise."""
    sde_sample_freq: int = -1
    """Steps between two draws of gSDE's exploration matrix; -1 draws only at the start of a rollout."""
    rollout_buffer_class: type[RolloutBuffer] | None = None
    """A class to use instead of :class:`~polyak.data.RolloutBuffer`."""
    rollout_buffer_kwargs: dict[str, Any] | None = None
    """Further arguments of the rollout buffer."""

    @classmethod
    def trial(cls) -> dict[str, Any]:
        return {**super().trial(), "n_steps": 64}

    @property
    def _actor_critic(self) -> ActorCriticPolicy:
        return cast(ActorCriticPolicy, self.policy)

    # -- construction --------------------------------------------------------------------------------------------------

    def _policy_options(self) -> dict[str, Any]:
        return {"use_sde": True, **super()._policy_options()} if self.use_sde else super()._policy_options()

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.env is not None:
            self.rollout_buffer = self._make_rollout_buffer()

    def _make_rollout_buffer(self) -> RolloutBuffer:
        cls = self.rollout_buffer_class or RolloutBuffer
        return cls(
            self.n_steps,
            self.observation_space,
            self.action_space,
            device=self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **(self.rollout_buffer_kwargs or {}),
        )

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _iterate(self, callback: BaseCallback, log_interval: int | None) -> bool:
        assert self.env is not None
        if not self.collect_rollouts(self.env, callback, self.rollout_buffer, self.n_steps):
            return False
        self._iteration += 1
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        if log_interval is not None and self._iteration % log_interval == 0:
            self.dump_logs(self._iteration)
        with self._split.update:
            self.train()
        return True

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        self._iteration = 0
        return super()._setup_learn(*args, **kwargs)

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        rows = self.n_steps * self.n_envs
        return -(-timesteps // rows) * self._updates_per_rollout(rows), min(rows, getattr(self, "batch_size", rows))

    def _updates_per_rollout(self, rows: int) -> int:
        """Gradient steps that :meth:`train` makes of a rollout of so many rows."""
        return 1

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the rollout buffer with fresh experience, advantages and returns.

        Where that is cheaper only the actor runs while stepping. Values and log-probabilities are then computed
        afterwards, in one pass over the whole rollout: the networks have not changed, so the numbers are the same.

        Args:
            env: the environments.
            callback: asked after every step whether to go on.
            rollout_buffer: emptied first.
            n_rollout_steps: steps per environment.

        Returns:
            whether to go on: False if a callback asked to stop.
        """
        assert self.runner is not None
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        if self.use_sde:
            self.policy.reset_noise(env.num_envs)
        forward = self._forward_act if self._actor_critic.values_while_acting else None
        own_add = forward is not None or type(rollout_buffer).add is not RolloutBuffer.add
        publish = callback.needs_locals
        cut: list[tuple[int, int, Any]] = []
        names = self._callback_locals(
            callback=callback,
            rollout_buffer=rollout_buffer,
            n_rollout_steps=n_rollout_steps,
            iteration=getattr(self, "_iteration", 0),
        )
        callback.on_rollout_start()
        self._prepare_to_act()
        act, n_envs, copying = forward or self._act, env.num_envs, self._split.copy
        for t in range(n_rollout_steps):
            if self.use_sde and self.sde_sample_freq > 0 and t % self.sde_sample_freq == 0:
                self.policy.reset_noise(n_envs)
            step = self.runner.step(act)
            self.num_timesteps += n_envs
            value = log_prob = None
            if forward is not None:
                value, log_prob = self._forwarded
            elif own_add or publish:
                with self._split.inference:
                    value, log_prob = self._evaluate(step.observations, step.actions)
            if publish:
                tensors = self.policy.obs_to_tensor(step.observations)[0]
                more = {"obs_tensor": tensors, "values": value, "log_probs": log_prob, "n_steps": t}
                callback.update_locals({**names, **on_policy_locals(step), **more})
            if not callback.on_step():
                return False
            self._update_info_buffer(step.infos, step.dones)
            rewards = step.rewards
            if step.ended and step.truncated.any():
                final = [(t, int(i), step.infos[i]["terminal_observation"]) for i in step.truncated.nonzero()[0]]
                if own_add:
                    rewards = rewards.copy()
                    for (_, i, _), v in zip(final, self._values_of(final), strict=True):
                        rewards[i] += self.gamma * v
                else:
                    cut += final
            started = perf_counter()
            rollout_buffer.add(step.observations, step.actions, rewards, step.episode_starts, value, log_prob)
            copying.seconds += perf_counter() - started
        with self._split.inference:
            if not own_add:
                self._evaluate_rollout(rollout_buffer)
                for (t, i, _), v in zip(cut, self._values_of(cut), strict=True):
                    rollout_buffer.rewards[t, i] += self.gamma * v
            with torch.no_grad():
                last_values = self._actor_critic.predict_values(self.policy.obs_to_tensor(step.new_obs)[0])
        with self._split.update:
            rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=step.dones)
        callback.on_rollout_end()
        return True

    def _act(self, obs: Observations) -> tuple[np.ndarray, np.ndarray]:
        actions = self._act_on(obs)
        return self.policy.to_env(actions), actions

    @torch.no_grad()
    def _forward_act(self, obs: Observations) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`_act`, with the values and log-probabilities that a subclass' ``forward`` makes of them."""
        tensors, value, log_prob = self._actor_critic(self.policy.obs_to_tensor(obs)[0])
        self._forwarded = value, log_prob
        actions = tensors.numpy(force=True)
        return self.policy.to_env(actions), actions

    @torch.no_grad()
    def _evaluate(self, observations: Observations, actions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Values [N, 1] and log-probabilities [N] of one step."""
        obs = self.policy.obs_to_tensor(observations)[0]
        return self._evaluated(obs, torch.as_tensor(actions, device=self.device))

    def _evaluated(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Values and log-probabilities as gradient steps see them: ratios of probabilities begin at 1."""
        with products_in(self.learner.precision):
            values, log_prob, _ = self._actor_critic.evaluate_actions(obs, actions)
        return values, log_prob

    @torch.no_grad()
    def _evaluate_rollout(self, buffer: RolloutBuffer) -> None:
        """Fill in the values and log-probabilities of everything in the buffer."""
        observations, actions = buffer.flat_inputs()
        if isinstance(self.learner, OnPolicyLearner) and len(actions) <= _SMALL_ROLLOUT:
            results = self.learner.evaluate((observations, actions))
            buffer.values[:] = results["values"].numpy(force=True).reshape(buffer.values.shape)
            buffer.log_probs[:] = results["log_prob"].numpy(force=True).reshape(buffer.log_probs.shape)
            return
        values, log_probs = [], []
        for first in range(0, len(actions), _EVALUATION_ROWS):
            rows = slice(first, first + _EVALUATION_ROWS)
            obs = (
                {k: v[rows] for k, v in observations.items()} if isinstance(observations, dict) else observations[rows]
            )
            value, log_prob = self._evaluated(obs, actions[rows])
            values.append(value.flatten())
            log_probs.append(log_prob)
        buffer.values[:] = torch.cat(values).numpy(force=True).reshape(buffer.values.shape)
        buffer.log_probs[:] = torch.cat(log_probs).numpy(force=True).reshape(buffer.log_probs.shape)

    @torch.no_grad()
    def _values_of(self, final: list[tuple[int, int, Any]]) -> list[float]:
        """The values of the observations at which episodes were cut short."""
        if not final:
            return []
        last = [observation for _, _, observation in final]
        stacked = {k: np.stack([o[k] for o in last]) for k in last[0]} if isinstance(last[0], dict) else np.stack(last)
        return self._actor_critic.predict_values(self.policy.obs_to_tensor(stacked)[0]).flatten().tolist()

    # -- learning ------------------------------------------------------------------------------------------------------

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump.

        Args:
            iteration: number of this rollout, to log; 0 logs none.
        """
        self._write_logs(**({"iterations": iteration} if iteration > 0 else {}))

    def train(self) -> None:
        """Learn from the rollout buffer."""
        raise NotImplementedError

    @property
    def _minibatches(self) -> Callable[[int | None], Iterator[Any]]:
        """Called with their size, None for all rows in one: the minibatches of a pass over the rollout, for the
        learner's ``update``."""
        buffer = self.rollout_buffer
        return buffer.minibatches if buffer.plain and self._gathers_late else buffer.get

    def _record(self, metrics: dict[str, list[Tensor]]) -> None:
        """Log the mean of each metric, and how much of the returns' variance the values explained."""
        buffer = self.rollout_buffer
        self._record_means(metrics)
        self.logger.record(
            "train/explained_variance", explained_variance(buffer.values.ravel(), buffer.returns.ravel())
        )
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if (log_std := getattr(self.policy, "log_std", None)) is not None:
            self.logger.record("train/std", torch.exp(log_std.detach()).mean())


def explained_variance(y_pred: np.ndarray, y_true: np.ndarray) -> float:
    """1 - Var[y_true - y_pred] / Var[y_true]: 1 is perfect, 0 no better than the mean. [B], [B] -> []"""
    variance = _variance(y_true)
    return float("nan") if variance == 0 else float(1 - _variance(y_true - y_pred) / variance)


def _variance(x: np.ndarray) -> float:
    """As ``np.var`` of a vector, at a third of its cost, which counts where rollouts are short."""
    apart = x - x.sum() / len(x)
    return apart.dot(apart) / len(x)


def on_policy_locals(step: Step) -> dict[str, Any]:
    """A step under the names that callbacks written for Stable-Baselines3 read."""
    return {
        "actions": step.actions,
        "clipped_actions": step.env_actions,
        "rewards": step.rewards,
        "dones": step.dones,
        "infos": step.infos,
        "new_obs": step.new_obs,
    }
