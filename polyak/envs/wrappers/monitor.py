"""Return, length and time of every episode, in the info and in a CSV file that plotting tools read."""

from __future__ import annotations

import csv
import glob
import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, TextIO

import gymnasium as gym

from polyak.envs.extras import needed
from polyak.envs.reading import plain_json, tables
from polyak.envs.reading.limits import check_regular
from polyak.envs.state import layers_of
from polyak.envs.validation import check_info, check_reward, is_over
from polyak.writing import make_folder

if TYPE_CHECKING:
    import pandas


class Monitor(gym.Wrapper):
    """Records each episode: ``info["episode"] = {"r": return, "l": length, "t": seconds since the start}``.

    Rewards and steps are those of the environment that it wraps, whatever wrappers around it change. In a
    :class:`~polyak.envs.VecEnv` an episode that such a wrapper ends (a TimeLimit) is recorded, too.

    Args:
        env: the environment to wrap.
        filename: CSV file to write episodes to (``.monitor.csv`` is added unless it ends so), or a folder to put
            ``monitor.csv`` in; None writes none.
        allow_early_resets: allow a reset before the end of an episode; otherwise it raises RuntimeError.
        reset_keywords: arguments that every reset must be given; they are recorded as columns.
        info_keywords: entries of the last info of an episode to record as columns.
        override_existing: overwrite the file; otherwise append to it.
    """

    EXT = "monitor.csv"

    def __init__(
        self,
        env: gym.Env,
        filename: str | os.PathLike[str] | None = None,
        allow_early_resets: bool = True,
        reset_keywords: tuple[str, ...] = (),
        info_keywords: tuple[str, ...] = (),
        override_existing: bool = True,
    ):
        super().__init__(env)
        self.t_start = time.time()
        self.results_writer: ResultsWriter | None = None
        if filename is not None:
            self.results_writer = ResultsWriter(
                filename,
                header={"t_start": self.t_start, "env_id": str(env.spec.id if env.spec is not None else None)},
                extra_keys=(*reset_keywords, *info_keywords),
                override_existing=override_existing,
            )
            self.t_start = self.results_writer.t_start or self.t_start
        self.reset_keywords = reset_keywords
        self.info_keywords = info_keywords
        self.allow_early_resets = allow_early_resets
        self.rewards: list[float] = []
        self.needs_reset = True
        self.episode_returns: list[float] = []
        self.episode_lengths: list[int] = []
        self.episode_times: list[float] = []
        self.total_steps = 0
        self.current_reset_info: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if not self.allow_early_resets and not self.needs_reset:
            raise RuntimeError(
                "Tried to reset an environment before done: its episode is under way and allow_early_resets=False. "
                "Play it to the end, make the Monitor with allow_early_resets=True, or put it around the wrapper that "
                "ends the episode."
            )
        for key in self.reset_keywords:
            if kwargs.get(key) is None:
                raise ValueError(
                    f"Expected you to pass keyword argument {key} into reset: "
                    f"it is in reset_keywords={self.reset_keywords}."
                )
            self.current_reset_info[key] = kwargs[key]
        self.rewards = []
        self.needs_reset = False
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if self.needs_reset:
            raise RuntimeError("Tried to step environment that needs reset: call reset() first.")
        result = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = result
            self.rewards.append(float(reward))
        except (TypeError, ValueError):
            return self._unfit(result)
        self.total_steps += 1
        if not (terminated is False and truncated is False) and is_over(self.env, terminated, truncated):
            self._end_episode(info)
        return observation, reward, terminated, truncated, info

    def _unfit(self, result: Any) -> Any:
        """Returns an invalid result of a step, which a VecEnv explains; raises the error here if only the reward is
        wrong."""
        try:
            _, reward, _, _, _ = result
        except (TypeError, ValueError):
            return result
        check_reward(self.env, reward)
        raise

    def _end_episode(self, info: dict[str, Any]) -> None:
        self.needs_reset = True
        check_info(self.env, info)
        info["episode"] = self.note_episode(sum(self.rewards), len(self.rewards), info)

    def note_episode(self, total: float, length: int, info: dict[str, Any]) -> dict[str, Any]:
        """Records an episode that has ended, and returns its record for ``info["episode"]``."""
        seconds = time.time() - self.t_start
        self.episode_returns.append(total)
        self.episode_lengths.append(length)
        self.episode_times.append(seconds)
        episode = {"r": round(total, 6), "l": length, "t": round(seconds, 6)}
        episode |= select_info(info, self.info_keywords)
        episode |= self.current_reset_info
        if self.results_writer is not None:
            self.results_writer.write_row(episode)
        return episode

    def get_state(self) -> dict[str, Any]:
        """Rewards and start of the running episode, without the record of past ones."""
        return {
            "rewards": list(self.rewards),
            "needs_reset": self.needs_reset,
            "total_steps": self.total_steps,
            "current_reset_info": dict(self.current_reset_info),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue the episode that :meth:`get_state` described."""
        self.rewards, self.needs_reset = list(state["rewards"]), state["needs_reset"]
        self.total_steps, self.current_reset_info = state["total_steps"], dict(state["current_reset_info"])

    def close(self) -> None:
        super().close()
        if self.results_writer is not None:
            self.results_writer.close()

    def get_total_steps(self) -> int:
        """Returns the number of steps taken so far."""
        return self.total_steps

    def get_episode_rewards(self) -> list[float]:
        """Return of each finished episode."""
        return self.episode_returns

    def get_episode_lengths(self) -> list[int]:
        """Steps of each finished episode."""
        return self.episode_lengths

    def get_episode_times(self) -> list[float]:
        """Seconds from the start to the end of each finished episode."""
        return self.episode_times


class CutEpisodes:
    """Records episodes that a wrapper around a Monitor ends, such as a TimeLimit; the Monitor itself only gets a reset.

    Make it when an episode has ended, reset the environment, and then call :meth:`record`. A wrapper that ends episodes
    without resetting what it wraps, such as one for each life of a game, leaves the Monitor's episode under way.

    Args:
        env: the environment with all its wrappers.
    """

    def __init__(self, env: gym.Env) -> None:
        monitors = [layer for layer in layers_of(env) if isinstance(layer, Monitor)]
        running = [monitor for monitor in monitors if monitor.rewards and not monitor.needs_reset]
        self._under_way = [(monitor, monitor.rewards, len(monitor.episode_returns)) for monitor in running]

    def record(self, info: dict[str, Any]) -> None:
        """Let each Monitor that was reset meanwhile record the episode with this last info; the outermost record
        becomes ``info["episode"]``."""
        for monitor, rewards, n_recorded in self._under_way:
            if monitor.rewards is not rewards and len(monitor.episode_returns) == n_recorded:
                info.setdefault("episode", monitor.note_episode(sum(rewards), len(rewards), info))


def select_info(info: dict[str, Any], keywords: Sequence[str]) -> dict[str, Any]:
    """Returns the entries of an info that ``info_keywords`` names.

    Raises:
        KeyError: the last info of the episode lacks an entry; the message names it.
    """
    for key in keywords:
        if key not in info:
            raise KeyError(
                f"info_keywords asks for {key!r}, which the info at the end of the episode lacks: "
                f"it has {sorted(info)}."
            )
    return {key: info[key] for key in keywords}


class LoadMonitorResultsError(Exception):
    """No monitor files were found, or one could not be read."""


class ResultsWriter:
    """Writes episodes to a monitor file: a line ``#{header as JSON}``, the column names, one row per episode.

    Args:
        filename: see :class:`Monitor`; missing folders are made.
        header: put in the first line.
        extra_keys: columns besides ``r``, ``l``, ``t``.
        override_existing: overwrite the file; otherwise append to it.

    Attributes:
        t_start: start of the seconds in the file, by its first line; 0 if that has none.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] = "",
        header: dict[str, float | str] | None = None,
        extra_keys: tuple[str, ...] = (),
        override_existing: bool = True,
    ):
        path, self.t_start = monitor_path(filename), 0.0
        make_folder(path.parent, "filename")
        begins = override_existing or not path.exists() or path.stat().st_size == 0
        self.file_handler: TextIO = path.open("w" if override_existing else "a", newline="\n")
        self.logger = csv.DictWriter(self.file_handler, fieldnames=("r", "l", "t", *extra_keys), lineterminator="\n")
        if begins:
            self.file_handler.write(f"#{json.dumps(header or {})}\n")
            self.logger.writeheader()
        self.file_handler.flush()
        with path.open(encoding="utf-8", errors="replace") as file, suppress(LoadMonitorResultsError):
            self.t_start = _read_start(str(path), file.readline(tables.LONGEST_HEADER))

    def write_row(self, epinfo: dict[str, Any]) -> None:
        """Write one episode; the row is in the file when this returns."""
        self.logger.writerow(epinfo)
        self.file_handler.flush()

    def close(self) -> None:
        """Close the file."""
        self.file_handler.close()


def monitor_path(filename: str | os.PathLike[str]) -> Path:
    """Returns the path of the monitor file for ``filename`` (a file, a prefix or a folder)."""
    name = os.path.expanduser(filename)
    if name.endswith(Monitor.EXT):
        return Path(name)
    if name == "" or os.path.isdir(name):
        return Path(name, Monitor.EXT)
    return Path(f"{name}.{Monitor.EXT}")


def get_monitor_files(path: str | os.PathLike[str]) -> list[str]:
    """Paths of the monitor files in a folder, sorted."""
    return sorted(glob.glob(os.path.join(glob.escape(os.path.expanduser(path)), "*" + Monitor.EXT)))


def load_results(path: str | os.PathLike[str]) -> pandas.DataFrame:
    """Loads all episodes of the monitor files in a folder, by time.

    Returns:
        Columns ``r`` (return), ``l`` (length), ``t`` (seconds since the earliest start), the keywords recorded, and
        ``index``, the episode's place in its own file.

    Raises:
        LoadMonitorResultsError: when there are no files, or one is malformed.
        ImportError: without pandas.
    """
    pandas = needed("pandas", "pandas is required for loading results", "extra")
    files = get_monitor_files(path)
    if not files:
        raise LoadMonitorResultsError(
            f"{path} holds no files *{Monitor.EXT}. Wrap the environment with Monitor(env, folder), or pass "
            "monitor_dir to make_vec_env."
        )
    starts, frames = [], []
    for file in files:
        start, frame = _read_episodes(pandas, file)
        frame["t"] += start
        starts.append(start)
        frames.append(frame)
    filled = [frame for frame in frames if not frame.empty] or frames  # pandas warns of empty ones
    merged = pandas.concat(filled).sort_values("t", kind="stable").reset_index()
    merged["t"] -= min(starts)
    return merged


_NUMBERS = ("r", "l", "t")


def _read_episodes(pandas: Any, file: str) -> tuple[float, pandas.DataFrame]:
    """Returns the time when the first episode of a file began, and a row for each episode."""
    try:
        check_regular(Path(file), file)
        with open(file, "rb") as lines:
            start = _read_start(file, lines.readline(tables.LONGEST_HEADER).decode("utf-8", "replace"))
            begun = lines.tell()
            tables.check_table(lines, ",", file)
            lines.seek(begun)
            frame = pandas.read_csv(lines, index_col=None, encoding_errors="replace")
    except (ValueError, OverflowError) as error:  # pandas' errors, too
        if isinstance(error, LoadMonitorResultsError):
            raise
        raise LoadMonitorResultsError(f"{file} is not a monitor file: {' '.join(str(error).split())}") from error
    for name in _NUMBERS:
        if name not in frame or not (frame.empty or frame[name].dtype.kind in "iuf"):
            found = f"is {frame[name].dtype}" if name in frame else "is missing"
            raise LoadMonitorResultsError(f"{file} is not a monitor file: its column {name!r} of numbers {found}.")
    return start, frame


def _read_start(file: str, first_line: str) -> float:
    try:
        if not first_line.startswith("#"):
            raise ValueError("no #")
        start = float(plain_json.parse_object(first_line[1:], "the header")["t_start"])
        if not math.isfinite(start):
            raise ValueError("no time")
        return start
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise LoadMonitorResultsError(
            f"{file} is not a monitor file: its first line must be like "
            f'#{{"t_start": 0.0, "env_id": "CartPole-v1"}}, got {first_line!r:.200}.'
        ) from error
