"""Environments that step as one in compiled or vectorised code, made by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import gymnasium as gym
import numpy as np
from gymnasium import error as gym_error
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from polyak.envs.adapters.infos import InfoRows
from polyak.envs.make import find_spec, missing_package
from polyak.envs.native.envpool import EnvPoolVectorEnv
from polyak.envs.native.gym_vector import GymVectorEnv
from polyak.envs.sizes import check_size
from polyak.envs.vec.vec_env import VecEnv, VecEnvObs

Backend: TypeAlias = Literal["gymnasium", "ale", "envpool"]

_ALE_VECTOR = "ale_py.vector_env:AtariVectorEnv"
_CARTPOLE_VECTOR = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"


def make_native_vec_env(
    env_id: str | EnvSpec,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    backend: Backend | None = None,
    env_kwargs: dict[str, Any] | None = None,
) -> VecEnv:
    """Make a VecEnv whose environments step as one in compiled or vectorised code, where such code exists.

    It is never chosen automatically, because the episodes differ from those of :func:`~polyak.envs.make_vec_env` with
    the same seed (all environments draw from one random generator, or the random numbers or rounding are others), and
    because there are no separate environments to wrap or to reach into. Infos have ``"episode"`` as Monitor's do.

    - ``"gymnasium"``: the ``vector_entry_point`` of the id, for example CartPole-v1.
    - ``"ale"``: ALE's own vector environment for ``ALE/...-v5``, see :class:`AtariGameVecEnv`.
    - ``"envpool"``: EnvPool, for the ids it has. It is seeded when it is made and again by each seeded reset.

    Args:
        env_id: a registered name or spec.
        n_envs: number of environments.
        seed: seeds the first reset, and each environment's generator where each has one of its own.
        backend: None for the first of "ale" and "gymnasium" that has the environment.
        env_kwargs: arguments of the vector environment. ALE's also take ``clip_reward`` and
            ``terminal_on_life_loss`` of AtariWrapper, both True by default.

    Raises:
        ValueError: for an unknown name or backend, ``n_envs`` below 1, or a backend that lacks the environment.
        ImportError: when a package is not installed; the message has the extra.
    """
    check_size("n_envs", n_envs)
    if backend not in (None, *get_args(Backend)):
        raise ValueError(f"backend must be None, {', '.join(map(repr, get_args(Backend)))}, got {backend!r}.")
    if backend == "envpool":  # it has names that are not registered in Gymnasium
        name = env_id if isinstance(env_id, str) else env_id.id
        venv: VecEnv = GymVectorEnv(EnvPoolVectorEnv(name, n_envs, seed, **(env_kwargs or {})), copy=False)
    else:
        spec = find_spec(env_id) if isinstance(env_id, str) else env_id
        owner = _backend_of(spec)
        if backend not in (None, owner):
            raise ValueError(f"{spec.id} is not of backend {backend!r}: use backend={owner!r} or None.")
        try:
            venv = _MAKERS[owner](spec, n_envs, dict(env_kwargs or {}))
        except (gym_error.DependencyNotInstalled, ImportError) as error:
            raise ImportError(missing_package(spec, error)) from error
    # Within 31 bits, which all backends accept.
    venv.seed(int(np.random.randint(2**31 - n_envs)) if seed is None else seed)
    return venv


def _backend_of(spec: EnvSpec) -> Backend:
    if spec.vector_entry_point is None:
        raise ValueError(
            f"{spec.id} has no vector environment of its own (its spec has no vector_entry_point). Use "
            f"make_vec_env({spec.id!r}, n_envs=n, vec_env_cls=SubprocVecEnv), or backend='envpool' if EnvPool has it."
        )
    return "ale" if spec.vector_entry_point == _ALE_VECTOR else "gymnasium"


# --- Gymnasium ------------------------------------------------------------------------------------------------------


def _make_gymnasium(spec: EnvSpec, n_envs: int, env_kwargs: dict[str, Any]) -> VecEnv:
    if spec.vector_entry_point == _CARTPOLE_VECTOR:
        limit = {"max_episode_steps": spec.max_episode_steps} if spec.max_episode_steps else {}
        env = _same_step_cartpole()(n_envs, **{**limit, **spec.kwargs, **env_kwargs})
        env.spec = spec
        return GymVectorEnv(env, copy=False)
    return GymVectorEnv(gym.make_vec(spec, n_envs, vectorization_mode="vector_entry_point", **env_kwargs))


def _same_step_cartpole() -> Callable[..., gym.vector.VectorEnv]:
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    class SameStepCartPoleVectorEnv(CartPoleVectorEnv):
        """Gymnasium's, but an environment that ends is reset in the same step, not in the next one."""

        metadata = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

        def step(self, action: Any) -> Any:
            obs, rewards, terminated, truncated, infos = super().step(action)
            ended = self.prev_done.nonzero()[0]
            if len(ended):
                infos = {**infos, "final_obs": obs.copy()}
                first = self.np_random.uniform(self.low, self.high, size=(4, len(ended)))
                state: Any = self.state
                state[:, ended] = first
                obs[ended] = first.T
                self.steps[ended] = 0
                self.prev_done[ended] = False
            return obs, rewards, terminated, truncated, infos

    return SameStepCartPoleVectorEnv


# --- Atari ----------------------------------------------------------------------------------------------------------


class AtariGameVecEnv(GymVectorEnv):
    """ALE's vector environment, prepared as :class:`~polyak.envs.AtariWrapper` and ``VecFrameStack(n_stack=4)`` do.

    Observations are ``(n_envs, 4, 84, 84)`` uint8, channels first. Four frames per action with the maximum of the last
    two, no-ops and FIRE at the start of a game, the end of an episode at the loss of a life, rewards as their sign.
    ``info["episode"]`` covers the whole game, in unclipped points and in frames, as with ``make_atari_env`` on a game
    with ``frameskip=1``.

    Differences from the wrappers:

    - 0 to ``noop_max - 1`` no-ops instead of 1 to ``noop_max``, from ALE's own random generator.
    - FIRE is pressed once, for one frame, not followed by action 2, and only at the start of a game: after the loss of
      a life the agent has to press it, and no no-op is played there.
    - The first observations after the loss of a life still hold the frames before it.
    - Grey before the maximum of two frames, not after it: images differ where sprites flicker over each other.
    - Sticky actions repeat the action within its four frames too (ALE's, with the chance that the id has: 0.25 for
      ``ALE/...-v5``).

    Args:
        env: the vector environment, made with ``autoreset_mode="SameStep"``, ``reward_clipping=False``,
            ``episodic_life=False`` (which would start a new game at the loss of a life) and, for the end of an episode
            at the loss of a life, ``life_loss_info=True``.
        clip_reward: replace rewards by their sign.
    """

    def __init__(self, env: gym.vector.VectorEnv, *, clip_reward: bool = True):
        super().__init__(env, copy=False)  # each step returns new arrays
        self.clip_reward = clip_reward
        self._frames_before = np.zeros(env.num_envs, dtype=np.int64)
        """Frames that the console has played before the current game."""

    def reset(self) -> VecEnvObs:
        obs = super().reset()
        self._frames_before = np.array([_frames_before(info) for info in self.reset_infos])
        return obs

    def _seed_of_reset(self) -> Any:
        return None if None in self._seeds else np.array(self._seeds)

    def _advance(self) -> tuple[VecEnvObs, np.ndarray, np.ndarray, InfoRows]:
        obs, rewards, dones, infos = super()._advance()
        if self.clip_reward:
            np.sign(rewards, out=rewards)
        return obs, rewards, dones, infos

    def _episodes_over(self, raw_infos: dict[str, Any], dones: np.ndarray) -> np.ndarray:
        frames_before = _frames_before(raw_infos)
        over = frames_before != self._frames_before
        self._lengths[over] = (frames_before - self._frames_before)[over]
        self._frames_before = frames_before
        return over

    def _after_own_reset(
        self, obs: VecEnvObs, raw_infos: dict[str, Any], dones: np.ndarray, over: np.ndarray
    ) -> dict[int, dict[str, Any]]:
        assert isinstance(obs, np.ndarray)
        lost_life = dones & ~over
        # The game continues, so its current observation is also the last one of the episode: ALE gives a final
        # observation only for the end of a game.
        raw_infos["final_obs"][lost_life] = obs[lost_life]
        infos = super()._after_own_reset(obs, raw_infos, dones, over)
        for index in np.flatnonzero(lost_life).tolist():
            infos[index].update(self.reset_infos[index])
        return infos


def _frames_before(infos: Mapping[str, Any]) -> Any:
    return infos["frame_number"] - infos["episode_frame_number"]


def _make_ale(spec: EnvSpec, n_envs: int, env_kwargs: dict[str, Any]) -> VecEnv:
    from ale_py.vector_env import AtariVectorEnv

    class _OwnMetadata(AtariVectorEnv):
        # It writes its mode into this dict, which would otherwise be the one of all vector environments.
        metadata = {"render_modes": []}

    taken = {"autoreset_mode", "reward_clipping", "episodic_life", "life_loss_info"} & env_kwargs.keys()
    if taken:
        raise ValueError(
            f"env_kwargs cannot set {', '.join(sorted(taken))}: use clip_reward and terminal_on_life_loss, as for "
            "AtariWrapper."
        )
    if env_kwargs.get("batch_size", 0) not in (0, n_envs):
        raise ValueError(f"batch_size must be n_envs ({n_envs}), got {env_kwargs['batch_size']}.")
    clip_reward = env_kwargs.pop("clip_reward", True)
    life_loss = env_kwargs.pop("terminal_on_life_loss", True)
    env = _OwnMetadata(
        **{**spec.kwargs, "num_envs": n_envs, **env_kwargs},
        autoreset_mode=AutoresetMode.SAME_STEP,
        reward_clipping=False,
        episodic_life=False,
        life_loss_info=life_loss,
    )
    return AtariGameVecEnv(env, clip_reward=clip_reward)


_MAKERS: dict[str, Callable[[EnvSpec, int, dict[str, Any]], VecEnv]] = {"gymnasium": _make_gymnasium, "ale": _make_ale}
