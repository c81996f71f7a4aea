"""Observations of mean 0 and variance 1, and rewards of bounded scale, from running statistics."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak import formats
from polyak.envs.nan_checks import all_finite, is_finite
from polyak.envs.nested_spaces import mapped_parts
from polyak.envs.spaces import check_shape_equal, is_image_space
from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper, unwrap_vec_wrapper, wrappers_of
from polyak.envs.wrappers.normalizer_state import FORMAT, SETTINGS, check_state, read_state
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.warning import warn_user
from polyak.writing import make_folder, replacing

Observations = TypeVar("Observations", bound=VecEnvObs)
MAPS = (
    *("normalize_obs", "_normalize_obs", "normalize_reward"),
    *("unnormalize_obs", "_unnormalize_obs", "unnormalize_reward"),
)
"""Methods of ``VecNormalize`` between raw and normalised values."""


class VecNormalize(VecEnvWrapper):
    """Normalises observations by their running mean and deviation, and rewards by the deviation of the return.

    The return is the discounted sum ``R_t = gamma * R_{t-1} + r_t`` since the episode's start; rewards are divided by
    its standard deviation and keep their mean. With ``center_reward`` they become ``(r - mean) / deviation`` of the
    rewards themselves. Results are float32.

    Args:
        venv: the VecEnv to wrap.
        training: update the statistics at each step. Set it to False for evaluation.
        norm_obs: normalise observations.
        norm_reward: normalise rewards.
        clip_obs: normalised observations stay within ``[-clip_obs, clip_obs]``.
        clip_reward: normalised rewards stay within ``[-clip_reward, clip_reward]``.
        gamma: discount of the return; use the algorithm's.
        epsilon: added to variances, against division by zero.
        norm_obs_keys: which entries of a Dict observation to normalise; None for all. They must be Box.
        center_reward: subtract the running mean of the rewards and divide by their deviation. The same number is taken
            from every reward, which makes longer episodes better or worse than they were: use it where their length
            does not depend on the actions.

    Raises:
        ValueError: for an observation space (or entry) that is not Box, or ``norm_obs_keys`` without a Dict space.

    Attributes:
        obs_rms: statistics of observations, by key for a Dict; None if they are not normalised.
        ret_rms: statistics of returns, or with ``center_reward`` of rewards.
    """

    state_attributes = ("returns", "old_obs", "old_reward")
    center_reward = False  # of those that were pickled before there was such a setting

    def __init__(
        self,
        venv: VecEnv,
        training: bool = True,
        norm_obs: bool = True,
        norm_reward: bool = True,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        norm_obs_keys: list[str] | None = None,
        *,
        center_reward: bool = False,
    ):
        super().__init__(venv)
        self.training = training
        self.norm_obs = norm_obs
        self.norm_reward = norm_reward
        self.clip_obs = clip_obs
        self.clip_reward = clip_reward
        self.gamma = gamma
        self.epsilon = epsilon
        self.norm_obs_keys = norm_obs_keys
        self.center_reward = center_reward
        self.obs_rms: RunningMeanStd | dict[str, RunningMeanStd] | None = None
        self.ret_rms = RunningMeanStd(shape=())
        self._configure(observations=norm_obs)
        self._forget_episode()

    def _configure(self, observations: bool) -> None:
        """Check the settings against the wrapped space; make the statistics and the space they imply."""
        space = self.venv.observation_space
        self.observation_space = space
        self.obs_rms = None
        if not observations:
            return
        self.norm_obs_keys = _checked_keys(space, self.norm_obs_keys)
        if self.norm_obs_keys is None:
            self.obs_rms = RunningMeanStd(shape=space.shape or ())
            self.observation_space = self._normalized_space(space)
            return
        assert isinstance(space, spaces.Dict)
        self.obs_rms = {key: RunningMeanStd(shape=space[key].shape or ()) for key in self.norm_obs_keys}
        normalized = {key: self._normalized_space(space[key]) for key in self.norm_obs_keys}
        self.observation_space = spaces.Dict({**space.spaces, **normalized})

    def _normalized_space(self, space: spaces.Space) -> spaces.Space:
        # Images are no longer uint8, and networks must not divide them by 255 again.
        if is_image_space(space):
            return spaces.Box(low=-self.clip_obs, high=self.clip_obs, shape=space.shape, dtype=np.float32)
        return space

    def _forget_episode(self) -> None:
        self.returns = np.zeros(self.num_envs)
        self.old_obs: Any = np.array([])
        self.old_reward = np.array([])
        self._old_terminal_obs: dict[int, Any] = {}

    # --- stepping ---

    def reset(self) -> VecEnvObs:
        obs = self.venv.reset()
        self._forget_episode()
        self.old_obs = obs
        self._update_obs(obs)
        return self.normalize_obs(obs)

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        self.old_obs = obs
        self.old_reward = rewards
        self._update_obs(obs)
        self._update_reward(rewards)
        self._old_terminal_obs = {}
        for index in np.flatnonzero(dones).tolist():
            if "terminal_observation" in infos[index]:
                terminal = infos[index]["terminal_observation"]
                self._old_terminal_obs[index] = terminal
                infos[index]["terminal_observation"] = self.normalize_obs(terminal)
        self.returns[dones] = 0
        return self.normalize_obs(obs), self.normalize_reward(rewards), dones, infos

    def _update_obs(self, obs: Any) -> None:
        if not self.training or not self.norm_obs or not all_finite(obs):
            return
        if isinstance(self.obs_rms, dict):
            for key, statistics in self.obs_rms.items():
                statistics.update(obs[key])
        elif self.obs_rms is not None:
            self.obs_rms.update(obs)

    def _update_reward(self, reward: np.ndarray) -> None:
        if not self.training or not is_finite(reward):
            return
        self.returns = self.returns * self.gamma + reward
        self.ret_rms.update(reward if self.center_reward else self.returns)

    # --- the four maps ---

    def normalize_obs(self, obs: Observations) -> Observations:
        """Normalise observations (one or a batch) with the statistics as they are; the argument is not altered."""
        return self._with_statistics(self._normalize_obs, obs)

    def unnormalize_obs(self, obs: Observations) -> Observations:
        """Undo :meth:`normalize_obs`, except for clipping."""
        return self._with_statistics(self._unnormalize_obs, obs)

    def _with_statistics(self, function: Callable[[Any, RunningMeanStd], Any], obs: Any) -> Any:
        """A function of arrays and their statistics, applied to those parts of an observation that have such."""
        if not self.norm_obs:
            return obs
        if isinstance(self.obs_rms, dict):
            return {**obs, **{key: function(obs[key], statistics) for key, statistics in self.obs_rms.items()}}
        assert self.obs_rms is not None
        return function(obs, self.obs_rms)

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Divide rewards by the deviation of the return, or see ``center_reward``, and clip them; float32."""
        if not self.norm_reward:
            return reward
        scaled = (reward - self._reward_shift) / np.sqrt(self.ret_rms.var + self.epsilon)
        return np.minimum(np.maximum(scaled, -self.clip_reward), self.clip_reward).astype(np.float32)

    def unnormalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Undo :meth:`normalize_reward`, except for clipping."""
        if not self.norm_reward:
            return reward
        return reward * np.sqrt(self.ret_rms.var + self.epsilon) + self._reward_shift

    @property
    def _reward_shift(self) -> Any:
        """[] the number that is subtracted from rewards."""
        return self.ret_rms.mean if self.center_reward else 0.0

    def _normalize_obs(self, obs: np.ndarray, statistics: RunningMeanStd) -> np.ndarray:
        scaled = (obs - statistics.mean) / np.sqrt(statistics.var + self.epsilon)
        # np.clip costs five times as much on arrays this small.
        return np.minimum(np.maximum(scaled, -self.clip_obs), self.clip_obs).astype(np.float32)

    def _unnormalize_obs(self, obs: np.ndarray, statistics: RunningMeanStd) -> np.ndarray:
        return obs * np.sqrt(statistics.var + self.epsilon) + statistics.mean

    # --- values before normalisation ---

    def get_original_obs(self) -> Any:
        """Copy of the last observations as the wrapped VecEnv gave them."""
        return mapped_parts(np.array, self.old_obs)

    def get_original_reward(self) -> np.ndarray:
        """Copy of the last rewards as the wrapped VecEnv gave them."""
        return self.old_reward.copy()

    def get_original_terminal_obs(self, index: int) -> Any:
        """Returns a copy of the last observation of the episode that ended in environment ``index`` at the last step,
        before normalisation.

        Undoing the normalisation of ``infos[index]["terminal_observation"]`` would not recover clipped entries.

        Raises:
            KeyError: when that environment did not end at the last step.
        """
        if index not in self._old_terminal_obs:
            raise KeyError(f"Environment {index} did not end at the last step: it has no terminal observation.")
        return mapped_parts(np.array, self._old_terminal_obs[index])

    def before_normalization(self, index: int, terminal: Any) -> Any:
        """Returns the last observation of the episode that ended in environment ``index`` at the last step, as it is
        stored.

        It is :meth:`get_original_terminal_obs`, or :meth:`unnormalize_obs` of the returned observation if a subclass
        overrides that method, or its ``step_wait`` has kept nothing.

        Args:
            index: an environment whose episode ended.
            terminal: ``infos[index]["terminal_observation"]``, which is normalised.
        """
        if index in self._old_terminal_obs and not self.overrides("unnormalize_obs", "_unnormalize_obs"):
            return self.get_original_terminal_obs(index)
        return self.unnormalize_obs(terminal)

    def overrides(self, *methods: str) -> bool:
        """Whether a subclass has another of these methods."""
        return any(getattr(type(self), name) is not getattr(VecNormalize, name) for name in methods)

    # --- keeping ---

    _own_statistics: ClassVar[Any] = {}  # a model saves them by state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Settings (bool, float, list of keys) and statistics (arrays, counts) under flat names; nothing else."""
        state: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        for prefix, statistics in self._statistics():
            state.update({f"{prefix}/{name}": value for name, value in statistics.state_dict().items()})
        state["returns"] = self.returns.copy()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over settings and statistics that :meth:`state_dict` returned.

        The returns of the running episodes are taken over when the number of environments is the same.

        Raises:
            ValueError: when the statistics have other keys or shapes than the observations here.
        """
        for name in SETTINGS:
            setattr(self, name, state.get(name, False))  # older files have no center_reward
        # norm_obs may have been switched off after statistics were collected.
        self._configure(observations=self.norm_obs or any(name.startswith("obs_rms") for name in state))
        for prefix, statistics in self._statistics():
            if f"{prefix}/mean" not in state:
                raise ValueError(f"The saved normalisation statistics have no entry {prefix!r}: {sorted(state)}.")
            part = {name: state[f"{prefix}/{name}"] for name in ("mean", "var", "count")}
            if np.shape(part["mean"]) != statistics.mean.shape:
                raise ValueError(
                    f"The saved normalisation statistics {prefix!r} have shape {np.shape(part['mean'])}, the "
                    f"environment's observations {statistics.mean.shape}. Load them for the environment they came from."
                )
            statistics.load_state_dict(part)
        if np.shape(state["returns"]) == self.returns.shape:
            self.returns = np.array(state["returns"], np.float64)

    @classmethod
    def from_state_dict(cls, venv: VecEnv, state: dict[str, Any]) -> VecNormalize:
        """Wrap ``venv`` with the settings and statistics that :meth:`state_dict` returned."""
        normalizer = cls(venv, **{name: state[name] for name in SETTINGS if name in state})
        normalizer.load_state_dict(state)
        return normalizer

    def detached(self) -> VecNormalize:
        """A copy without environments, with the present statistics: see :func:`detached`.

        It is of the same class if that overrides how observations or rewards are normalised.
        """
        if not self.overrides(*MAPS):
            return detached(self.state_dict())
        copied = copy.deepcopy(self)
        copied.returns = self.returns.copy()
        return copied

    @property
    def has_seen_data(self) -> bool:
        """Whether any statistics are other than at the start."""
        return any(statistics.count != RunningMeanStd().count for _, statistics in self._statistics())

    def same_statistics(self, other: VecNormalize) -> bool:
        """Whether ``other`` normalises the same, as far as statistics decide."""
        mine, theirs = dict(self._statistics()), dict(other._statistics())
        equal = mine.keys() == theirs.keys() and all(
            np.array_equal(value, theirs[prefix].state_dict()[name])
            for prefix, statistics in mine.items()
            for name, value in statistics.state_dict().items()
        )
        return equal and (self.norm_obs, self.center_reward) == (other.norm_obs, other.center_reward)

    def differences(self, other: VecNormalize) -> dict[str, tuple[Any, Any]]:
        """The settings by which ``other`` normalises otherwise, whatever the statistics: name -> (own, other's).

        Rewards count where they are normalised here: ``norm_reward=False``, as evaluations have it, is no difference.
        """
        names = ["norm_obs"]
        if both := self.norm_obs and other.norm_obs:
            names += ["norm_obs_keys", "clip_obs"]
        if self.norm_reward:
            names += ["norm_reward", "clip_reward"] if other.norm_reward else ["norm_reward"]
        if both or (self.norm_reward and other.norm_reward):
            names.append("epsilon")
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if _plain(pair[0]) != _plain(pair[1])}

    def take_settings(self, other: VecNormalize) -> None:
        """Normalise by the settings of ``other`` in which :attr:`differences` are; with any, statistics are new ones.

        Raises:
            ValueError: they do not suit the observations here.
        """
        if differ := self.differences(other):
            for name, (_, theirs) in differ.items():
                setattr(self, name, theirs)
            self._configure(observations=self.norm_obs)

    def take_statistics(self, other: VecNormalize) -> str | None:
        """Continue from copies of the statistics of ``other``; settings stay.

        Returns:
            why not, if they do not fit: nothing is changed then.
        """
        for name in ("norm_obs", "center_reward"):
            if (own := getattr(self, name)) != (theirs := getattr(other, name)):
                return f"it has {name}={own}, they were collected with {name}={theirs}"
        found = dict(other._statistics())
        for prefix, statistics in self._statistics():
            if prefix not in found:
                return f"it has norm_obs_keys={self.norm_obs_keys}, they were collected with {other.norm_obs_keys}"
            if (shape := found[prefix].mean.shape) != statistics.mean.shape:
                return f"its {prefix} has the shape {statistics.mean.shape}, theirs {shape}"
        for prefix, statistics in self._statistics():
            statistics.load_state_dict(found[prefix].state_dict())
        return None

    def _statistics(self) -> list[tuple[str, RunningMeanStd]]:
        if isinstance(self.obs_rms, dict):
            found = [(f"obs_rms/{key}", statistics) for key, statistics in self.obs_rms.items()]
        else:
            found = [] if self.obs_rms is None else [("obs_rms", self.obs_rms)]
        return [*found, ("ret_rms", self.ret_rms)]

    def save(self, save_path: str | os.PathLike[str]) -> None:
        """Write settings and statistics to a file that holds numbers and text only (an ``.npz``, whatever its suffix).

        The file appears under its name only when it is complete; missing folders are made.
        """
        path = Path(save_path).expanduser()
        make_folder(path.parent, "save_path")
        state = self.state_dict()
        arrays = {f"state/{name}": value for name, value in state.items() if isinstance(value, np.ndarray)}
        rest = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
        header = json.dumps({"format": FORMAT, "state": rest}, default=float)
        with replacing(path) as file:
            np.savez(file, **{"header": np.array(header), **arrays})  # type: ignore[arg-type]

    @classmethod
    def load(cls, load_path: str | os.PathLike[str], venv: VecEnv, *, trust: bool = False) -> VecNormalize:
        """Wrap ``venv`` with the settings and statistics of a saved file; reading it runs no code.

        A subclass returns an instance of itself, made by its constructor with the settings by name.

        Args:
            load_path: a file that :meth:`save` wrote, or a ``vecnormalize.pkl`` of Stable-Baselines3.
            venv: the VecEnv to wrap.
            trust: also read a pickle with other content than Stable-Baselines3 writes. It can run any code: set this
                only for files that you trust.

        Raises:
            ValueError: for another file, a damaged one, or statistics of other observations.
        """
        state = read_state(Path(load_path).expanduser(), trust)
        try:
            return cls.from_state_dict(venv, state)
        except ValueError as error:
            raise ValueError(f"path={str(load_path)!r}: {error}") from error

    def save_sb3(self, save_path: str | os.PathLike[str]) -> None:
        """Write settings and statistics as Stable-Baselines3's ``VecNormalize.load`` reads them."""
        resolve_name(formats.STATISTICS_WRITERS["sb3"])(self, save_path)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("venv", "returns", "old_obs", "old_reward", "_old_terminal_obs"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled normaliser; :meth:`set_venv` must follow."""
        self.__dict__.update(state)

    def set_venv(self, venv: VecEnv) -> None:
        """Give an unpickled normaliser the VecEnv to wrap.

        Raises:
            ValueError: when it already wraps one.
            AssertionError: when the observations have other shapes.
        """
        if "venv" in self.__dict__:
            raise ValueError("This VecNormalize wraps a VecEnv already. Make another one: VecNormalize(venv).")
        check_shape_equal(self.observation_space, venv.observation_space)
        self.venv = venv
        self.num_envs = venv.num_envs
        self.action_space = venv.action_space
        self.render_mode = venv.render_mode
        self._forget_episode()


def _checked_keys(space: spaces.Space, keys: list[str] | None) -> list[str] | None:
    """Keys of a Dict space to normalise, None for a Box space."""
    if isinstance(space, spaces.Dict):
        keys = list(space.spaces) if keys is None else list(keys)
        for key in keys:
            if key not in space.spaces:
                raise ValueError(f"norm_obs_keys has {key!r}, which the observation space lacks: {list(space.spaces)}.")
            if not isinstance(space[key], spaces.Box):
                raise ValueError(
                    f"VecNormalize only supports Box spaces, but the one at key {key!r} is {space[key]}: "
                    "explicitly pass the observation keys to normalise, norm_obs_keys=[...], without it."
                )
        return keys
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"VecNormalize only supports observations of a Box or a Dict of them, got {space}. "
            "Pass norm_obs=False to normalise rewards only."
        )
    if keys is not None:
        raise ValueError(f"norm_obs_keys={keys} is applicable only to Dict observations, got {space}. Leave it out.")
    return None


def detached(state: dict[str, Any]) -> VecNormalize:
    """Makes a normaliser without environments from a result of :meth:`VecNormalize.state_dict`.

    Only the maps of observations and rewards, :meth:`~VecNormalize.state_dict` and :meth:`~VecNormalize.save` work.

    Raises:
        ValueError: a setting or a statistic is missing, or of another kind.
    """
    check_state(state)
    normalizer = VecNormalize.__new__(VecNormalize)
    for name in SETTINGS:
        setattr(normalizer, name, state.get(name, False))
    parts = sorted({name.rpartition("/")[0] for name in state if name.startswith(("obs_rms", "ret_rms"))})
    found = {
        part: RunningMeanStd.from_state_dict({key: state[f"{part}/{key}"] for key in ("mean", "var", "count")})
        for part in parts
    }
    normalizer.ret_rms = found.pop("ret_rms")
    by_key = {part.removeprefix("obs_rms/"): statistics for part, statistics in found.items()}
    normalizer.obs_rms = by_key.get("obs_rms") or by_key or None
    normalizer.returns = np.array(state["returns"], np.float64)
    return normalizer


# --- finding and copying --------------------------------------------------------------------------------------------


def unwrap_vec_normalize(env: gym.Env | VecEnv) -> VecNormalize | None:
    """Outermost VecNormalize around ``env``, or None."""
    return unwrap_vec_wrapper(env, VecNormalize)


def sync_envs_normalization(env: VecEnv, eval_env: VecEnv) -> None:
    """Let every VecNormalize of ``eval_env`` normalise like the matching one of ``env``, from the outside in.

    Copies the statistics and the settings that affect a policy's observations, with a warning if these differ:
    ``norm_obs``, ``norm_obs_keys``, ``clip_obs`` and ``epsilon``. An ``eval_env`` that leaves rewards as they are
    (``norm_reward=False``) still does.

    Args:
        env: the environment to copy from.
        eval_env: the environment to copy to.

    Raises:
        AssertionError: when their numbers of VecNormalize differ.
        ValueError: the settings do not suit the observations of ``eval_env``.
    """
    sources, targets = _normalizers(env), _normalizers(eval_env)
    if not sources:
        return
    if len(sources) != len(targets):
        raise AssertionError(
            "Error while synchronizing normalization statistics: the training environment is wrapped in "
            f"{len(sources)} VecNormalize, the evaluation environment in {len(targets)}. "
            "Wrap both alike, the second with VecNormalize(eval_env, training=False, norm_reward=False)."
        )
    for source, target in zip(sources, targets, strict=True):
        if differ := target.differences(source):
            warn_user(
                f"the evaluation environment's VecNormalize has {as_settings(differ)}, the training environment's "
                f"{as_settings(differ, 1)}: it takes over the latter. Make it with the same settings, but for "
                "training=False and norm_reward=False.",
                UserWarning,
            )
            target.take_settings(source)
        target.ret_rms, target.center_reward = (
            source.ret_rms.copy(),
            source.center_reward,
        )  # one sets the other's meaning
        if isinstance(source.obs_rms, dict):
            target.obs_rms = {key: statistics.copy() for key, statistics in source.obs_rms.items()}
        elif source.obs_rms is not None:
            target.obs_rms = source.obs_rms.copy()


def as_settings(differ: dict[str, tuple[Any, Any]], side: int = 0) -> str:
    """Formats one side of :meth:`VecNormalize.differences` as arguments."""
    return ", ".join(f"{name}={pair[side]}" for name, pair in differ.items())


def _plain(value: Any) -> Any:
    """A setting, where only the value counts: the order of keys does not."""
    return set(value) if isinstance(value, list | tuple) else value


def normalized_like(env: VecEnv, training_env: VecEnv | None) -> VecEnv:
    """Wraps ``env`` in frozen copies of the VecNormalize of ``training_env``, with raw rewards.

    Returns ``env`` itself if ``training_env`` has none (or is None), or ``env`` is normalised already.
    """
    if training_env is None or _normalizers(env):
        return env
    for source in reversed(_normalizers(training_env)):
        if source.overrides(*MAPS):
            layer = source.detached()
            layer.set_venv(env)
        else:
            layer = VecNormalize.from_state_dict(env, source.state_dict())
        layer.training = layer.norm_reward = False
        env = layer
    return env


def _normalizers(env: VecEnv) -> list[VecNormalize]:
    return [layer for layer in wrappers_of(env) if isinstance(layer, VecNormalize)]
