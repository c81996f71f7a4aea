"""Wrappers that make an Atari game the task of Mnih et al. 2015 ("DQN"), with the options of Machado et al. 2018."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.extras import needed
from polyak.envs.sizes import check_size
from polyak.envs.spaces import SpaceError
from polyak.warning import warn_user

Step = tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]
Reset = tuple[np.ndarray, dict[str, Any]]


def _without_seed(kwargs: dict[str, Any]) -> dict[str, Any]:
    # For a second reset in a row: the same seed again would start the same episode.
    return {name: value for name, value in kwargs.items() if name != "seed"}


def _action_meanings(env: gym.Env, needed_by: str) -> list[str]:
    get_meanings = getattr(env.unwrapped, "get_action_meanings", None)
    if get_meanings is None:
        raise AttributeError(
            f"{needed_by} asks an environment for get_action_meanings(), which {env.unwrapped} does not have. "
            "The Atari wrappers work on games of ale-py (for example ALE/Breakout-v5)."
        )
    return get_meanings()


class StickyActionEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Repeat the last executed action with some probability, whatever the agent chose (Machado et al. 2018, §5).

    Args:
        env: the game.
        action_repeat_probability: chance of repeating; the paper uses 0.25.

    Raises:
        ValueError: for a number outside [0, 1].
    """

    def __init__(self, env: gym.Env, action_repeat_probability: float):
        super().__init__(env)
        if not 0.0 <= action_repeat_probability <= 1.0:
            raise ValueError(f"action_repeat_probability must lie in [0, 1], got {action_repeat_probability}.")
        self.action_repeat_probability = action_repeat_probability
        self._sticky_action = 0

    def reset(self, **kwargs: Any) -> Reset:
        self._sticky_action = 0  # no-op
        return self.env.reset(**kwargs)

    def step(self, action: int) -> Step:
        if self.np_random.random() >= self.action_repeat_probability:
            self._sticky_action = action
        return self.env.step(self._sticky_action)


class NoopResetEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Start each episode with 1 to ``noop_max`` no-op actions (Mnih et al. 2015, "up to 30 no-ops").

    Args:
        env: the game; its action 0 must be the no-op.
        noop_max: the most no-ops.

    Raises:
        ValueError: when ``noop_max`` is below 1.
        SpaceError: when action 0 is something else.
    """

    def __init__(self, env: gym.Env, noop_max: int = 30):
        super().__init__(env)
        if noop_max < 1:
            raise ValueError(f"noop_max must be at least 1, got {noop_max}. Leave the wrapper out for none.")
        meanings = _action_meanings(env, "NoopResetEnv")
        if meanings[0] != "NOOP":
            raise SpaceError(f"NoopResetEnv needs action 0 to be NOOP, got {meanings}.")
        self.noop_max = noop_max
        self.override_num_noops: int | None = None
        """Set to a number to use always that many."""
        self.noop_action = 0

    def reset(self, **kwargs: Any) -> Reset:
        obs, info = self.env.reset(**kwargs)
        noops = self.override_num_noops
        if noops is None:
            noops = int(self.unwrapped.np_random.integers(1, self.noop_max + 1))
        for _ in range(noops):
            obs, _, terminated, truncated, info = self.env.step(self.noop_action)
            if terminated or truncated:
                obs, info = self.env.reset(**_without_seed(kwargs))
        return obs, info


class FireResetEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Press FIRE after a reset, in games that stand still until then.

    Args:
        env: the game; its action 1 must be FIRE.

    Raises:
        SpaceError: when it is not, or there are fewer than 3 actions.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        meanings = _action_meanings(env, "FireResetEnv")
        if len(meanings) < 3 or meanings[1] != "FIRE":
            raise SpaceError(f"FireResetEnv needs at least 3 actions of which number 1 is FIRE, got {meanings}.")

    def reset(self, **kwargs: Any) -> Reset:
        obs, info = self.env.reset(**kwargs)
        for action in (1, 2):  # some games require a second button
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(**_without_seed(kwargs))
        return obs, info


class EpisodicLifeEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Report the loss of a life as the end of an episode; the game itself is reset only when it is over.

    Args:
        env: the game.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.lives = 0
        self.was_real_done = True

    def step(self, action: int) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = terminated or truncated
        before, self.lives = self.lives, self._lives_left()
        # At 0 lives some games continue for a few frames: their own end counts then.
        lost_a_life = 0 < self.lives < before
        return obs, reward, terminated or lost_a_life, truncated, info

    def reset(self, **kwargs: Any) -> Reset:
        """Reset the game if it is over, otherwise continue with a no-op step."""
        over = self.was_real_done
        if not over:
            obs, _, terminated, truncated, info = self.env.step(0)
            over = terminated or truncated
        if over:
            obs, info = self.env.reset(**kwargs)
        self.lives = self._lives_left()
        return obs, info

    def _lives_left(self) -> int:
        return self.env.unwrapped.ale.lives()  # type: ignore[attr-defined]


class MaxAndSkipEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Repeat each action, sum the rewards and return the pixelwise maximum of the last two frames.

    The maximum removes the flicker of sprites that the console draws on every other frame (Mnih et al. 2015). When an
    episode ends during the repetition, it is the maximum of the last two frames that were played.

    Args:
        env: the game.
        skip: how often each action is played.

    Raises:
        ValueError: when ``skip`` is below 1.
        SpaceError: when observations are no arrays.
    """

    def __init__(self, env: gym.Env, skip: int = 4):
        super().__init__(env)
        check_size("skip", skip)
        space = env.observation_space
        if space.shape is None or space.dtype is None:
            raise SpaceError(f"MaxAndSkipEnv needs observations that are arrays, got {space}.")
        self._skip = skip
        # Copies: an environment may write its next frame to the same array.
        self._obs_buffer = np.zeros((2, *space.shape), dtype=space.dtype)

    def step(self, action: int) -> Step:
        total_reward, frames = 0.0, 0
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self._obs_buffer[frames % 2] = obs
            frames += 1
            total_reward += float(reward)
            if terminated or truncated:
                break
        frame = self._obs_buffer[0].copy() if frames == 1 else self._obs_buffer.max(axis=0)
        return frame, total_reward, terminated, truncated, info


class ClipRewardEnv(gym.RewardWrapper[np.ndarray, int]):
    """Replace each reward by its sign: -1, 0 or 1 (Mnih et al. 2015).

    Args:
        env: the game.
    """

    def reward(self, reward: SupportsFloat) -> float:
        return float(np.sign(float(reward)))


class WarpFrame(gym.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """Convert each RGB image to grey and resize it, by default to the 84 x 84 of Mnih et al. 2015.

    Args:
        env: the game.
        width: of the result.
        height: of the result.

    Raises:
        ImportError: without opencv.
        SpaceError: when observations are no RGB images.
    """

    def __init__(self, env: gym.Env, width: int = 84, height: int = 84):
        super().__init__(env)
        needed("cv2", "WarpFrame needs opencv to resize images", "atari")  # here to fail early
        if not isinstance(env.observation_space, spaces.Box) or env.observation_space.shape[2:] != (3,):
            raise SpaceError(f"WarpFrame needs RGB images (H, W, 3), got {env.observation_space}.")
        self.width = width
        self.height = height
        self.observation_space = spaces.Box(0, 255, shape=(height, width, 1), dtype=np.uint8)

    def observation(self, frame: np.ndarray) -> np.ndarray:
        """``(H, W, 3)`` to ``(height, width, 1)``, both uint8."""
        import cv2  # not kept as an attribute: a module cannot be copied or pickled with the environment

        grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        return cv2.resize(grey, (self.width, self.height), interpolation=cv2.INTER_AREA)[:, :, None]


class AtariWrapper(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """The usual preparation of an Atari game, in this order; each part can be left out.

    Sticky actions, no-ops at the start, frame skip with maximum of two frames, end of episode at loss of a life, FIRE
    after a reset (in games that have it), grey 84 x 84 images, rewards clipped to their sign. Stack frames with
    VecFrameStack.

    Warns when the game itself skips frames, because both skips multiply: ``NoFrameskip-v4`` games do not, for
    ``ALE/...-v5`` games pass ``frameskip=1``.

    Args:
        env: the game.
        noop_max: most no-ops at the start of an episode; 0 for none.
        frame_skip: how often each action is played; 1 for no skip and no maximum.
        screen_size: side of the square image.
        terminal_on_life_loss: report the loss of a life as the end of the episode.
        clip_reward: replace rewards by their sign.
        action_repeat_probability: chance of a sticky action; 0 for none.
    """

    def __init__(
        self,
        env: gym.Env,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
        action_repeat_probability: float = 0.0,
    ):
        _warn_double_skip(env, frame_skip)
        if action_repeat_probability > 0.0:
            env = StickyActionEnv(env, action_repeat_probability)
        if noop_max > 0:
            env = NoopResetEnv(env, noop_max=noop_max)
        if frame_skip > 1:
            env = MaxAndSkipEnv(env, skip=frame_skip)
        if terminal_on_life_loss:
            env = EpisodicLifeEnv(env)
        if "FIRE" in _action_meanings(env, "AtariWrapper"):
            env = FireResetEnv(env)
        env = WarpFrame(env, width=screen_size, height=screen_size)
        if clip_reward:
            env = ClipRewardEnv(env)
        super().__init__(env)


def _warn_double_skip(env: gym.Env, frame_skip: int) -> None:
    inner = getattr(env.unwrapped, "_frameskip", 1)
    if frame_skip > 1 and inner != 1:
        warn_user(
            f"{env.unwrapped} already plays each action {inner} times and AtariWrapper(frame_skip={frame_skip}) "
            f"repeats that. Make the game with frameskip=1 (make_atari_env(..., env_kwargs={{'frameskip': 1}})), "
            "or pass wrapper_kwargs={'frame_skip': 1}."
        )
