"""Episode records for a whole VecEnv, such as one whose environments cannot be wrapped one by one."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.envs.wrappers.monitor import Monitor, ResultsWriter, select_info
from polyak.warning import warn_user


class VecMonitor(VecEnvWrapper):
    """Records each episode: ``info["episode"] = {"r": return, "l": length, "t": seconds since the start}``.

    Args:
        venv: the VecEnv to wrap.
        filename: CSV file to write the episodes of all environments to, see :class:`~polyak.envs.Monitor`.
        info_keywords: entries of the last info of an episode to record as columns.
    """

    passes_on = ("observations", "rewards")
    state_attributes = ("episode_count", "episode_returns", "episode_lengths")

    def __init__(
        self, venv: VecEnv, filename: str | os.PathLike[str] | None = None, info_keywords: tuple[str, ...] = ()
    ):
        super().__init__(venv)
        if any(_is_monitored(venv)):
            warn_user(
                "An environment has a `Monitor` already: its info['episode'] is replaced by that of `VecMonitor`. "
                "Use only one of the two.",
                UserWarning,
            )
        self.t_start = time.time()
        self.info_keywords = info_keywords
        self.episode_count = 0
        self.episode_returns = np.zeros(self.num_envs)
        self.episode_lengths = np.zeros(self.num_envs, dtype=np.int64)
        self.results_writer: ResultsWriter | None = None
        if filename is not None:
            spec = venv.attr_of_first("spec", None)
            header: dict[str, float | str] = {"t_start": self.t_start, "env_id": str(getattr(spec, "id", None))}
            self.results_writer = ResultsWriter(filename, header=header, extra_keys=info_keywords)

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        self.episode_returns[:] = 0
        self.episode_lengths[:] = 0
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.episode_returns += rewards
        self.episode_lengths += 1
        if np.count_nonzero(dones):
            for index in np.flatnonzero(dones).tolist():
                self._end_episode(index, infos)
        return observations, rewards, dones, infos

    def _end_episode(self, index: int, infos: list[dict[str, Any]]) -> None:
        episode = {
            "r": float(self.episode_returns[index]),
            "l": int(self.episode_lengths[index]),
            "t": round(time.time() - self.t_start, 6),
        }
        episode |= select_info(infos[index], self.info_keywords)
        infos[index]["episode"] = episode
        self.episode_count += 1
        self.episode_returns[index] = 0
        self.episode_lengths[index] = 0
        if self.results_writer is not None:
            self.results_writer.write_row(episode)

    def close(self) -> None:
        if self.results_writer is not None:
            self.results_writer.close()
        self.venv.close()


def _is_monitored(venv: VecEnv) -> list[bool]:
    try:
        return venv.env_is_wrapped(Monitor)
    except (AttributeError, NotImplementedError):  # a VecEnv without single environments
        return []
