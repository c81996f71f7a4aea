"""Check that an environment follows the Gymnasium API and suits the algorithms here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.masks import mask_of, sample_allowed
from polyak.envs.nested_spaces import SEPARATOR, SpacePart, by_name, is_composed, parts, parts_by_name
from polyak.envs.spaces import is_image_space, is_image_space_channels_first
from polyak.warning import warn_user

_API = "see https://gymnasium.farama.org/api/env/"
_SPACES = "see https://gymnasium.farama.org/api/spaces/"
_SMALLEST_IMAGE = 36  # below, the Nature CNN runs out of pixels
_SHOWN_INDICES = 20  # of the entries that are out of bounds
_STEPS = 10
_GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


def check_env(env: gym.Env, warn: bool = True, skip_render_check: bool = True) -> None:
    """Check an environment: its spaces, the results of ``reset`` and ``step``, goals, NaN; warn of properties that make
    training hard.

    The environment is reset and stepped a few times.

    Args:
        env: the environment.
        warn: give advice and report unsupported spaces as warnings.
        skip_render_check: do not look at ``render_mode`` and ``render()``.

    Raises:
        AssertionError: when the environment breaks the API; the message names the place, the expected and the returned
            value.
        TypeError: when ``reset`` does not take a ``seed``.
    """
    _require(
        isinstance(env, gym.Env),
        f"env must be a gymnasium.Env, got {type(env).__name__}: derive its class from gymnasium.Env ({_API}).",
    )
    _check_spaces_exist(env)
    observation_space, action_space = env.observation_space, env.action_space
    _check_reset_signature(env)

    # Nothing that the environment returns can be compared with spaces that are not arrays.
    unsupported = _unsupported(observation_space, "observation") + _unsupported(action_space, "action")
    if warn:
        for message in [*unsupported, *_advice_on_observations(observation_space), *_advice_on_actions(action_space)]:
            warn_user(message)
    if unsupported:
        return
    _check_names(observation_space)
    _check_action_bounds(action_space)
    _check_returned_values(env, observation_space)
    _check_finite(env)
    if not skip_render_check:
        _check_render(env)


def _require(holds: bool, message: str) -> None:
    # Not an assert statement: the check must also be made under `python -O`.
    if not holds:
        raise AssertionError(message)


# --- spaces ---------------------------------------------------------------------------------------------------------


def _check_spaces_exist(env: gym.Env) -> None:
    for name in ("observation", "action"):
        space = getattr(env, f"{name}_space", None)
        _require(space is not None, f"The environment has no {name}_space: set it in its __init__ ({_SPACES}).")
        _require(
            isinstance(space, spaces.Space),
            f"{name}_space must be one of gymnasium.spaces ({_SPACES}), got {type(space).__name__}.",
        )


def _unsupported(space: spaces.Space, kind: str) -> list[str]:
    """Why values of the space cannot be checked or used; empty when they can."""
    messages = []
    for part in parts(space):
        if isinstance(part.space, spaces.Graph | spaces.Sequence | spaces.OneOf | spaces.Text):
            where = f" (key {part.name!r})" if part.path else ""
            hint = " Pad it to a fixed size (a Box) instead." if isinstance(part.space, spaces.Sequence) else ""
            messages.append(
                f"{type(part.space).__name__} {kind} space is not supported{where}.{hint} "
                "Note: the checks of returned values are skipped."
            )
    return messages


def _check_names(space: spaces.Space) -> None:
    """Check that the parts of a composed space have different names."""
    if is_composed(space):
        try:
            parts_by_name(space)
        except ValueError as error:
            raise AssertionError(str(error)) from None


def _advice_on_observations(space: spaces.Space) -> list[str]:
    return [message for part in parts(space) for message in _advice_on_one_observation(part.space, part.name)]


def _advice_on_one_observation(space: spaces.Space, key: str) -> list[str]:
    where = f" {key}" if key else ""
    if not isinstance(space, spaces.Box):
        return []
    messages: list[str] = []
    if len(space.shape) == 3:
        messages += _advice_on_image(space, key)
    elif len(space.shape) != 1:
        messages.append(
            f"The shape {space.shape} of the observation{where} is that of neither a vector nor an image. Flatten it "
            "to one dimension, or write a features extractor for it."
        )
    return messages


def _advice_on_image(space: spaces.Box, key: str) -> list[str]:
    where = f" {key}" if key else ""
    messages = []
    if space.dtype != np.uint8:
        messages.append(
            f"The observation{where} has the shape of an image, but dtype {space.dtype} instead of uint8. Give images "
            "as np.uint8, and anything else as a flat vector."
        )
    if np.any(space.low != 0) or np.any(space.high != 255):
        messages.append(
            f"The observation{where} has the shape of an image, but its bounds are not 0 and 255. The CNN policy "
            "divides images by 255, so other ranges may train badly."
        )
    # The channels come last or first; the other two dimensions are height and width.
    channels_first = is_image_space(space) and is_image_space_channels_first(space)
    height_and_width = space.shape[1:] if channels_first else space.shape[:2]
    if min(height_and_width) < _SMALLEST_IMAGE:
        messages.append(
            f"The observation{where} is an image of {height_and_width} pixels; the default `CnnPolicy` needs at least "
            f"{_SMALLEST_IMAGE}x{_SMALLEST_IMAGE}. Enlarge it, or write a features extractor for it."
        )
    return messages


def _advice_on_actions(space: spaces.Space) -> list[str]:
    boxes = [part for part in parts(space) if isinstance(part.space, spaces.Box)]
    return [message for part in boxes for message in _advice_on_box(part)]


def _advice_on_box(part: SpacePart) -> list[str]:
    space: Any = part.space
    messages = []
    where, how = (
        (f" of {part.name}", "") if part.path else ("", ": gymnasium.wrappers.RescaleAction(env, -1, 1) rescales them")
    )
    if np.any(np.abs(space.low) != np.abs(space.high)) or np.any(space.low != -1) or np.any(space.high != 1):
        messages.append(f"The action space{where} is {space}, but training goes best with actions in [-1, 1]{how}.")
    if space.dtype != np.float32:
        messages.append(
            f"The action space{where} has dtype {space.dtype}: use np.float32, the dtype of the policy's actions."
        )
    return messages


def _check_action_bounds(space: spaces.Space) -> None:
    for part in parts(space):
        if isinstance(part.space, spaces.Box):
            _require(
                bool(np.isfinite(part.space.low).all() and np.isfinite(part.space.high).all()),
                f"The action space {part.space} is unbounded: give it finite low and high.",
            )


# --- returned values ------------------------------------------------------------------------------------------------


def _check_reset_signature(env: gym.Env) -> None:
    parameters = inspect.signature(env.reset).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "seed" not in parameters and not takes_any:
        raise TypeError(
            "reset() has no argument `seed`: define it as reset(self, seed=None, options=None) "
            "and call super().reset(seed=seed) first."
        )


def _check_returned_values(env: gym.Env, observation_space: spaces.Space) -> None:
    obs, info = _check_reset_result(env.reset())
    _check_goals(env, observation_space)
    _check_obs(obs, observation_space, "reset")

    result = env.step(_allowed_action(env, obs, info))
    _require(
        isinstance(result, tuple) and len(result) == 5,
        "`step()` must return a tuple of 5, (obs, reward, terminated, truncated, info), "
        f"got {f'a tuple of {len(result)}' if isinstance(result, tuple) else type(result).__name__}.",
    )
    obs, reward, terminated, truncated, info = result
    _check_obs(obs, observation_space, "step")
    _require(
        isinstance(reward, (float, int)) and not isinstance(reward, bool),
        f"`step()` must give the reward as a float, got {type(reward).__name__}: {reward!r}. Use float(reward).",
    )
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        _require(
            isinstance(value, bool),
            f"`step()` must give {name} as a bool, got {type(value).__name__}: {value!r}. Use bool({name}).",
        )
    _require(isinstance(info, dict), f"`step()` must give info as a dict, got {info!r}.")
    _check_compute_reward(env, obs, reward, info)


def _allowed_action(env: gym.Env, obs: Any, info: dict[str, Any]) -> Any:
    """A random allowed action: an environment may fail on a forbidden one."""
    try:
        mask = mask_of(env, obs, info)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    return sample_allowed(env.action_space, mask)


def _check_reset_result(result: Any) -> tuple[Any, dict[str, Any]]:
    _require(
        isinstance(result, tuple) and len(result) == 2,
        f"`reset()` must give a pair (obs, info), got {type(result).__name__}.",
    )
    obs, info = result
    _require(isinstance(info, dict), f"`reset()` must give info as a dict, got {info!r}.")
    return obs, info


def _check_obs(obs: Any, space: spaces.Space, method: str, name: str = "") -> None:
    where = f" at key {name!r}" if name else ""
    if isinstance(space, spaces.Dict):
        _require(
            isinstance(obs, Mapping),
            f"The observation of `{method}()`{where} must be a dict, as its space is a Dict, got {type(obs).__name__}.",
        )
        _require(
            set(obs) == set(space.spaces),
            f"The observation of `{method}()`{where} has other keys than observation_space: "
            f"{sorted(obs)} != {sorted(space.spaces)}",
        )
        children: Any = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        _require(
            isinstance(obs, tuple) and len(obs) == len(space.spaces),
            f"The observation of `{method}()`{where} must be a tuple of {len(space.spaces)}, as its space is a Tuple, "
            f"got {f'a tuple of {len(obs)}' if isinstance(obs, tuple) else type(obs).__name__}.",
        )
        children = enumerate(space.spaces)
    else:
        try:
            return _check_one_obs(obs, space, method)
        except AssertionError as error:
            if not name:
                raise
            raise AssertionError(f"Error while checking key={name}: {error}") from error
    for key, part in children:
        _check_obs(obs[key], part, method, f"{name}{SEPARATOR}{key}" if name else str(key))
    return None


def _check_one_obs(obs: Any, space: spaces.Space, method: str) -> None:
    _require(
        not isinstance(obs, tuple), f"The observation of `{method}()` is a tuple: return an array or a dict of arrays."
    )
    mismatch = f"The observation of `{method}()` does not fit {space}"
    if isinstance(space, spaces.Discrete):
        _require(
            isinstance(obs, (int, np.integer)), f"{mismatch}: it must be an int, got {type(obs).__name__}: {obs!r}."
        )
    elif isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        _require(
            isinstance(obs, np.ndarray),
            f"{mismatch}: it must be a numpy array, got {type(obs).__name__}. Return np.array(obs, np.{space.dtype}).",
        )
        _require(
            obs.shape == space.shape, f"{mismatch}: wrong shape. Expected: {space.shape}, actual shape: {obs.shape}"
        )
        _require(
            np.can_cast(obs.dtype, space.dtype),
            f"{mismatch}: its dtype is not safe to cast. Expected: {space.dtype}, actual dtype: {obs.dtype}. Return "
            f"obs.astype(np.{space.dtype}), or make the space with dtype=np.{obs.dtype}.",
        )
        if isinstance(space, spaces.Box):
            _check_bounds(obs, space, mismatch)
    _require(space.contains(obs), f"{mismatch}, got {obs!r}")


def _check_bounds(obs: np.ndarray, space: spaces.Box, mismatch: str) -> None:
    nans = np.argwhere(np.isnan(obs))
    if len(nans) > 0:
        raise AssertionError(f"{mismatch}: obs[{_index_text(nans[0])}] is nan")
    outside = np.argwhere((obs < space.low) | (obs > space.high))
    if len(outside) == 0:
        return
    lines = []
    for index in map(tuple, outside[:_SHOWN_INDICES]):
        lines.append(
            f"Expected: {space.low[index]} <= obs[{_index_text(index)}] <= {space.high[index]}, "
            f"actual value: {obs[index]}"
        )
    if len(outside) > _SHOWN_INDICES:
        lines.append(f"and {len(outside) - _SHOWN_INDICES} more.")
    raise AssertionError(f"{mismatch}: out of bounds at {len(outside)} invalid indices:\n" + "\n".join(lines))


def _index_text(index: Any) -> str:
    return ",".join(str(int(place)) for place in index)


# --- goals ----------------------------------------------------------------------------------------------------------


def _goal_reward(env: gym.Env) -> Callable[[Any, Any, Any], Any] | None:
    return getattr(env.unwrapped, "compute_reward", None)


def _check_goals(env: gym.Env, space: spaces.Space) -> None:
    if _goal_reward(env) is None:
        return
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
    _require(
        set(_GOAL_KEYS) <= set(keys),
        "An environment with `compute_reward()` is taken to have goals, so its observations need the keys "
        f"{list(_GOAL_KEYS)}, got the keys {keys}. Add these, or rename `compute_reward()` if there are no goals.",
    )


def _check_compute_reward(env: gym.Env, obs: Any, reward: Any, info: dict[str, Any]) -> None:
    """Hindsight relabelling calls ``compute_reward`` with a batch of goals."""
    compute_reward = _goal_reward(env)
    if compute_reward is None:
        return
    batch = 2
    achieved, desired = (np.stack([np.asarray(obs[key])] * batch) for key in ("achieved_goal", "desired_goal"))
    space = env.observation_space
    if isinstance(space, spaces.Dict) and isinstance(space["achieved_goal"], spaces.Discrete):
        achieved, desired = achieved[:, None], desired[:, None]  # as a replay buffer stores numbers
    rewards = compute_reward(achieved, desired, np.array([info] * batch))
    _require(
        np.shape(rewards) == (batch,),
        "`compute_reward()` must be vectorized: for a batch of "
        f"{batch} goals it must return an array of shape ({batch},), got {_kind(rewards)}.",
    )
    _require(
        np.allclose(np.asarray(rewards, dtype=float), float(reward)),
        f"`compute_reward()` must give the reward of `step()`, {reward}, got {np.asarray(rewards)[0]}.",
    )


def _kind(value: Any) -> str:
    return f"shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


# --- NaN, inf and images ------------------------------------------------------------------------------------------


def _check_finite(env: gym.Env) -> None:
    """Take a few steps and warn about the first NaN and infinity, which spoil a training long after they occur."""
    obs, info = env.reset()
    found = _warn_not_finite(obs, "observation", "at reset")
    for _ in range(_STEPS):
        if found:
            return
        action = _allowed_action(env, obs, info)
        obs, reward, terminated, truncated, info = env.step(action)
        found |= _warn_not_finite(obs, "observation", f"after action {action}")
        found |= _warn_not_finite(reward, "reward", f"after action {action}")
        if terminated or truncated:
            obs, info = env.reset()


def _warn_not_finite(value: Any, name: str, when: str) -> bool:
    named = by_name(value) if isinstance(value, Mapping | tuple) else {"": value}
    found = False
    for key, part in named.items():
        numbers = np.asarray(part)
        if numbers.dtype.kind != "f":
            continue
        for kind, bad in (("nan", np.isnan(numbers)), ("inf", np.isinf(numbers))):
            if bad.any():
                found = True
                where = f" {key}" if key else ""
                place = f"[{_index_text(np.argwhere(bad)[0])}]" if numbers.ndim else ""
                warn_user(f"found {kind} in {name}s: {name}{where}{place} returned by the environment {when}.")
    return found


def _check_render(env: gym.Env) -> None:
    modes = env.metadata.get("render_modes")
    if modes is None:
        warn_user("No render modes were declared in the environment: set metadata = {'render_modes': [...]}.")
        return
    mode = env.render_mode
    if not modes:
        _require(
            mode is None,
            f"render_mode={mode!r} was asked for, but the environment declares no render modes in its metadata.",
        )
        return
    _require(
        mode is None or mode in modes,
        f"render_mode={mode!r} of the environment is not one of its metadata['render_modes']={modes}.",
    )
    if mode is not None:
        env.reset()
        frame = env.render()
        if mode == "rgb_array":
            _require(
                isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[-1] == 3,
                f"render() in mode 'rgb_array' must return an array (H, W, 3), got {_kind(frame)}.",
            )
