"""Evaluation of a policy by episodes without learning, and statistics of their returns."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.masks import Masks, find_masks
from polyak.envs.normalisation import as_trained
from polyak.envs.normalisation_scale import as_seen_in
from polyak.envs.spaces import check_for_correct_spaces
from polyak.envs.vec.vec_env import VecEnv, is_vecenv_wrapped
from polyak.envs.wrap import as_vec_env, check_is_env, is_batch
from polyak.envs.wrappers.by_name import name_parts
from polyak.envs.wrappers.layers import above_normalisation
from polyak.envs.wrappers.monitor import Monitor
from polyak.envs.wrappers.normalize import as_settings, normalized_like, unwrap_vec_normalize
from polyak.envs.wrappers.vec_monitor import VecMonitor
from polyak.evaluation.intervals import (
    Interval,
    check_confidence,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
    success_interval,
)
from polyak.evaluation.shared_environments import check_not_in_use, note_use
from polyak.evaluation.undisturbed import is_exposed, undisturbed
from polyak.hyperparameters.declaration import whole
from polyak.warning import advise, warn_user

EvalCallbackFn = Callable[[dict[str, Any], dict[str, Any]], None]


class Predictor(Protocol):
    """Anything with the ``predict`` of a model or a policy."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: np.ndarray | None = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]: ...


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationResult:
    """The episodes of one evaluation and their statistics.

    Args:
        returns: [n] undiscounted return of each episode, from its Monitor if there is one.
        lengths: [n] steps of each episode.
        successes: [n] ``info["is_success"]`` at the end of each episode; ``None`` if the environment does not report
            it.
        n_capped: episodes ended by ``max_steps_per_episode``.
        confidence: level of the intervals.
    """

    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None = None
    n_capped: int = 0
    confidence: float = 0.95

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns (of the population, as in ``evaluate_policy``)."""
        return float(np.std(self.returns))

    @property
    def iqm(self) -> float:
        """Interquartile mean of the returns: the mean without the lowest and the highest quarter."""
        return float(interquartile_mean(self.returns))

    @property
    def ci(self) -> Interval:
        """Interval of the mean return, :func:`mean_interval`; for returns that are all 0 or 1,
        :func:`success_interval`. NaN at both ends if it is unknown: for a single episode, or equal returns other than 0
        and 1."""
        if np.isin(self.returns, (0, 1)).all():
            return success_interval(self.returns.sum(), len(self.returns), self.confidence)
        return mean_interval(self.returns, self.confidence)

    @property
    def ci_in_words(self) -> str:
        """``"1.00 to 2.00"``, or the reason why it is unknown."""
        if self.ci.is_known or (len(self.returns) > 1 and np.ptp(self.returns) > 0):
            return f"{self.ci:.2f}"
        return "unknown, as all returns are equal" if len(self.returns) > 1 else "unknown, of a single episode"

    @property
    def iqm_ci(self) -> Interval:
        """Interval of the interquartile mean, :func:`interquartile_interval`; NaN at both ends if it is unknown."""
        return interquartile_interval(self.returns, self.confidence)

    @property
    def success_rate(self) -> float | None:
        """Share of successful episodes, if the environment reports success."""
        return None if self.successes is None else float(np.mean(self.successes))

    @property
    def success_ci(self) -> Interval | None:
        """Interval of the success rate, :func:`success_interval`, if the environment reports success."""
        if self.successes is None:
            return None
        return success_interval(np.sum(self.successes), len(self.successes), self.confidence)

    def __repr__(self) -> str:
        figures = {"mean": f"{self.mean:.2f}", "std": f"{self.std:.2f}", "episodes": len(self.returns)}
        figures["mean_length"] = f"{np.mean(self.lengths):.1f}"
        if self.success_rate is not None:
            figures["success_rate"] = f"{self.success_rate:.3f}"
        if self.n_capped:
            figures["n_capped"] = self.n_capped
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in figures.items())})"

    def __str__(self) -> str:
        text = f"mean return {self.mean:.2f} ({self.confidence:.0%} interval {self.ci_in_words}), "
        text += f"IQM {self.iqm:.2f}, std {self.std:.2f}, {len(self.returns)} episodes"
        if self.success_rate is None:
            return text
        return f"{text}, success rate {self.success_rate:.1%} ({self.confidence:.0%} interval {self.success_ci:.1%})"


def evaluate_policy(
    model: Predictor,
    env: gym.Env | VecEnv | str,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: EvalCallbackFn | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    *,
    max_steps_per_episode: int | None = None,
    use_masking: bool = True,
) -> tuple[float, float] | tuple[list[float], list[int]]:
    """Play episodes and return the mean and standard deviation of their returns.

    The episodes are distributed evenly over the environments, so that those with short episodes are not counted more
    often. Returns and lengths are those of a ``Monitor`` wrapper if there is one: wrappers around it do not change
    them, and a game of several lives counts once. An episode that a wrapper around it ends (a TimeLimit) counts.
    Evaluation in the training environments truncates the running episodes of the training.

    Args:
        model: anything with ``predict``.
        env: where to play, wrapped as in training; or a registered name, see :func:`as_vector`.
        n_eval_episodes: total number of episodes.
        deterministic: the policy's best action instead of a sample.
        render: show every step.
        callback: called as ``callback(locals, globals)`` after each step of each environment with episodes left, with
            ``locals`` holding ``i``, ``reward``, ``done``, ``info``, ``model``, ``env``, ``observations``, ``actions``
            and the statistics so far.
        reward_threshold: fail unless the mean return is higher.
        return_episode_rewards: return the lists of returns and lengths instead.
        warn: warn if returns are not measured by a ``Monitor``.
        max_steps_per_episode: end an episode after this many steps and count it as it is, with a warning.
        use_masking: apply the environment's action masks, if the model supports them; ``False`` ignores masks.

    Raises:
        ValueError: ``n_eval_episodes`` or ``max_steps_per_episode`` is less than 1, or ``env`` is an unknown name, or
            names an environment whose spaces differ from the model's.
        AssertionError: the mean return does not exceed ``reward_threshold``.
    """
    venv = as_vector(env, model)
    if warn and not _is_monitored(venv):
        warn_user(
            "The environment to evaluate in has no ``Monitor``, so wrappers that change rewards or end episodes early "
            "change what is measured. Put it in a ``Monitor`` before any other wrapper.",
            UserWarning,
        )
    try:
        with _sparing(model, None):
            episodes = _play(
                model, venv, n_eval_episodes, deterministic, render, callback, max_steps_per_episode, use_masking
            )
    finally:
        if isinstance(env, str):
            venv.close()
    returns, lengths = [e.ret for e in episodes], [e.length for e in episodes]
    mean, std = np.mean(returns), np.std(returns)
    if reward_threshold is not None and not mean > reward_threshold:
        raise AssertionError(f"Mean reward below threshold: {mean:.2f} < {reward_threshold:.2f}")
    return (returns, lengths) if return_episode_rewards else (mean, std)  # type: ignore[return-value]


def evaluate(
    model: Predictor,
    env: gym.Env | VecEnv | str,
    n_episodes: int = 20,
    *,
    deterministic: bool = True,
    seed: int | None = None,
    max_steps_per_episode: int | None = None,
    confidence: float = 0.95,
    callback: EvalCallbackFn | None = None,
) -> EvaluationResult:
    """Play episodes and return their statistics.

    Args:
        model: anything with ``predict``.
        env: where to play, wrapped as in training; or a registered name, see :func:`as_vector`.
        n_episodes: total number of episodes, distributed evenly over the environments.
        deterministic: the policy's best action instead of a sample.
        seed: of the environments and of sampled actions; equal seeds give equal results, and the state of the model's
            training is not changed. ``None`` does not seed the environments, and protects only a running training, like
            :func:`evaluate_policy`.
        max_steps_per_episode: end an episode after this many steps and count it as it is, with a warning.
        confidence: level of the intervals, in (0, 1).
        callback: called after each step of each environment with episodes left, see :func:`evaluate_policy`.

    Raises:
        ValueError: a number out of range, an unknown name, or one of an environment whose spaces differ from the
            model's.
    """
    check_confidence(confidence)
    venv = as_vector(env, model)
    try:
        with _sparing(model, seed):
            if seed is not None:
                venv.seed(seed)
            episodes = _play(model, venv, n_episodes, deterministic, False, callback, max_steps_per_episode)
    finally:
        if isinstance(env, str):
            venv.close()
    successes = [e.success for e in episodes]
    return EvaluationResult(
        returns=np.array([e.ret for e in episodes], dtype=np.float64),
        lengths=np.array([e.length for e in episodes], dtype=np.int64),
        successes=None if any(s is None for s in successes) else np.array(successes, dtype=bool),
        n_capped=sum(e.capped for e in episodes),
        confidence=confidence,
    )


def _advise_on_normalisation(model: Any, env: VecEnv) -> None:
    """Warn if a model's observations are normalised differently than in training."""
    learned = getattr(model, "normalisation", None)
    if learned is None or learned.is_by_itself or (known := learned.known) is None:
        return
    own = unwrap_vec_normalize(env)
    if own is None:
        what = "env does not normalise" if known.norm_obs else ""
    elif known.has_seen_data and not own.has_seen_data:
        what = "the VecNormalize of env has seen no data"
    else:
        differ = own.differences(known)
        what = f"that of env has {as_settings(differ)} instead of {as_settings(differ, 1)}" if differ else ""
    if what:
        advise(
            f"evaluation with another normalisation: {what}",
            f"the model learned under VecNormalize, but {what}: what it sees here has another scale. "
            "Evaluate on model.get_env(), or wrap env: VecNormalize.load(statistics, env) with training=False and "
            "norm_reward=False; sync_envs_normalization(model.get_env(), env) brings settings and statistics up to "
            "date.",
        )


def _sparing(model: Any, seed: int | None) -> AbstractContextManager[None]:
    """Returns the context of an evaluation; outside of ``learn`` and without a seed it draws like :meth:`predict`."""
    return undisturbed(model, seed) if seed is not None or is_exposed() else nullcontext()


class EpisodeResult(NamedTuple):
    """The statistics of an episode."""

    ret: float
    length: int
    success: bool | None
    capped: bool


LONG = 100_000
"""Steps from which an episode may be endless: a warning is given."""


@dataclass
class _Seat:
    """One environment of the vector: statistics of its episode, and the number of episodes left to play."""

    n_left: int
    monitored: bool
    max_steps: int | None
    total: float = 0.0
    steps: int = 0
    game_steps: int = 0  # a monitored game of several lives is "done" at each of them; the cap counts the whole game
    idle: bool = False

    def step(self, reward: float, done: bool, info: dict[str, Any]) -> tuple[bool, bool]:
        """Count a step. Returns whether the episode ended, and whether it has reached the cap without ending."""
        self.total += reward
        self.steps += 1
        self.game_steps += 1
        if self.game_steps == LONG and self.max_steps is None:
            advise(
                "an episode without end",
                f"an episode of the evaluation has taken {LONG:,} steps and has no end yet; the environment may never "
                "end it. Set a limit: max_steps_per_episode=1000, or gymnasium.wrappers.TimeLimit(env, 1000).",
            )
        ended = done and (not self.monitored or "episode" in info)
        return ended, not ended and self.max_steps is not None and self.game_steps >= self.max_steps

    def episode(self, info: dict[str, Any], capped: bool) -> EpisodeResult:
        """Returns the episode that has just ended."""
        total, steps = self.total, self.steps
        if self.monitored and not capped:
            total, steps = info["episode"]["r"], info["episode"]["l"]
        self.n_left -= 1
        self.game_steps = 0
        success = info.get("is_success")
        return EpisodeResult(float(total), int(steps), None if success is None else bool(success), capped)


def as_vector(env: gym.Env | VecEnv | str, model: Any = None) -> VecEnv:
    """Returns ``env`` as a vector to evaluate in.

    A vector is returned unchanged, and a single environment as a vector of one, without a wrapper except for nested
    observations. A name is created as by models (in a ``Monitor``, images with channels first), with the normalisation
    of ``model``, frozen and with raw rewards.

    Raises:
        ValueError: an unknown name, or one whose spaces differ from those of ``model``.
    """
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, gym.vector.VectorEnv) or is_batch(env):
        return as_vec_env(env)
    if not isinstance(env, str):
        check_is_env(env)
        single = name_parts(env)
        return DummyVecEnv([lambda: single])
    return fitted(env, as_vec_env(env), _normalisation_of(model), model)


def fitted(name: str, venv: VecEnv, training_env: VecEnv | None, spaces_of: Any) -> VecEnv:
    """Returns the environment ``name``, normalised like ``training_env``; it must have the spaces of ``spaces_of``.

    Raises:
        ValueError: the spaces or the shapes of the statistics differ, or a wrapper around the VecNormalize of
            ``training_env`` changes observations; ``venv`` is then closed.
    """
    try:
        learned = getattr(spaces_of, "normalisation", None)
        above = (() if learned is None else learned.above) or above_normalisation(training_env).observations
        if above:
            raise ValueError(
                f"The model learned from observations that {above[0]} changed after VecNormalize, and an environment "
                f"that is made by its name has no {above[0]}. Pass one that is wrapped as in training."
            )
        venv = normalized_like(venv, training_env)
        if hasattr(spaces_of, "observation_space"):
            check_for_correct_spaces(venv, spaces_of.observation_space, spaces_of.action_space)
    except ValueError as error:
        venv.close()
        raise ValueError(f"env={name!r} does not suit the model. {error}") from None
    return venv


def _normalisation_of(model: Any) -> VecEnv | None:
    """Returns the environment whose VecNormalize scales ``model.predict``'s observations; None if they are raw."""
    learned = getattr(model, "normalisation", None)
    return getattr(model, "env", None) if learned is None else learned.of_predictions


def masks_for(model: Any, env: VecEnv) -> Masks | None:
    """Returns the reader of the masks of ``env``, after its reset, if the model supports masks; otherwise None."""
    policy = getattr(model, "policy", model)
    supported = getattr(model, "supports_masks", False) and getattr(policy, "supports_masks", False)
    return find_masks(env) if supported else None


def states_with_rewards(model: Any, states: Any, rewards: Any) -> Any:
    """Returns the states of ``model.predict``, updated by the rewards of its actions for models with a method
    ``with_rewards(states, rewards)``, such as a Decision Transformer."""
    update = getattr(model, "with_rewards", None)
    return states if update is None else update(states, rewards)


def _is_monitored(env: VecEnv) -> bool:
    return is_vecenv_wrapped(env, VecMonitor) or env.env_is_wrapped(Monitor)[0]


def _play(
    model: Predictor,
    env: VecEnv,
    n_episodes: int,
    deterministic: bool,
    render: bool = False,
    callback: EvalCallbackFn | None = None,
    max_steps: int | None = None,
    use_masking: bool = True,
) -> list[EpisodeResult]:
    """Play ``n_episodes``, distributed evenly over the environments; returns them in the order of their ends.

    A vector of environments cannot reset a single one. An environment that reaches ``max_steps`` therefore idles, with
    uncounted steps, until its episode ends, or until all others with episodes left idle and the vector is reset.
    """
    for name, number in (("n_eval_episodes", n_episodes), ("max_steps_per_episode", max_steps)):
        if number is not None and whole(name, number) < 1:
            raise ValueError(f"{name} must be at least 1, got {number!r}.")
    check_not_in_use(env)
    _advise_on_normalisation(model, env)
    try:
        with as_trained(model, env):
            episodes = _episodes(model, env, n_episodes, deterministic, render, callback, max_steps, use_masking)
    finally:
        note_use(env, model)
    if n_capped := sum(episode.capped for episode in episodes):
        warn_user(
            f"{n_capped} of {n_episodes} evaluation episodes reached max_steps_per_episode={max_steps} and were cut; "
            "their returns count as they stood.",
            UserWarning,
        )
    return episodes


def _episodes(
    model: Predictor,
    env: VecEnv,
    n_episodes: int,
    deterministic: bool,
    render: bool,
    callback: EvalCallbackFn | None,
    max_steps: int | None,
    use_masking: bool,
) -> list[EpisodeResult]:
    """Play the episodes of :func:`_play`."""
    n_envs, monitored, shown = env.num_envs, _is_monitored(env), as_seen_in(env, model)
    seats = [_Seat((n_episodes + i) // n_envs, monitored, max_steps) for i in range(n_envs)]
    episodes: list[EpisodeResult] = []
    observations, states, starts = env.reset(), None, np.ones(n_envs, dtype=bool)
    masks = masks_for(model, env) if use_masking else None
    more = {} if masks is None else {"action_masks": masks.after_reset(observations)}
    while playing := [i for i in range(n_envs) if seats[i].n_left > 0]:
        if all(seats[i].idle for i in playing):
            observations, states, starts = env.reset(), None, np.ones(n_envs, dtype=bool)
            more = {} if masks is None else {"action_masks": masks.after_reset(observations)}
            for seat in seats:
                seat.idle = False
        actions, states = model.predict(
            shown(observations), state=states, episode_start=starts, deterministic=deterministic, **more
        )
        new_observations, rewards, dones, infos = env.step(actions)
        states = states_with_rewards(model, states, rewards)
        if masks is not None:
            more = {"action_masks": masks.after_step(new_observations, np.asarray(dones), infos)}
        starts = np.array(dones, dtype=bool)
        for i in playing:
            seat, done = seats[i], bool(dones[i])
            if seat.idle:
                seat.idle = not done
                continue
            ended, capped = seat.step(rewards[i], done, infos[i])
            if callback is not None:
                step = {"i": i, "reward": rewards[i], "done": done or capped, "info": infos[i], "actions": actions}
                step |= {"observations": observations, "new_observations": new_observations, "rewards": rewards}
                step |= {"dones": dones, "infos": infos, "states": states, "episode_starts": starts, "n_envs": n_envs}
                step |= {"model": model, "env": env, "n_eval_episodes": n_episodes, "deterministic": deterministic}
                step |= {"current_rewards": [s.total for s in seats], "current_lengths": [s.steps for s in seats]}
                step |= {"current_reward": seat.total, "current_length": seat.steps, "render": render}
                step |= {"episode_rewards": [e.ret for e in episodes], "episode_lengths": [e.length for e in episodes]}
                callback(step, globals())
            if ended or capped:
                episodes.append(seat.episode(infos[i], capped))
            if done or capped:
                seat.total, seat.steps, seat.idle = 0.0, 0, not done
        observations = new_observations
        if render:
            env.render()
    return episodes
