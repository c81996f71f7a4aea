"""Films of the environments while they run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.extras import needed
from polyak.envs.sizes import check_size
from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.warning import warn_user
from polyak.writing import Unfinished, make_folder


class VecVideoRecorder(VecEnvWrapper):
    """Films all environments, as tiles of one image, into MP4 files.

    Frames are written to the file immediately and are not kept in memory. A film that is cut short by :meth:`close` is
    kept as well.

    Args:
        venv: the VecEnv to wrap; its environments are made with ``render_mode="rgb_array"``.
        video_folder: where to put the films; made if missing.
        record_video_trigger: a function of the number of steps so far; returns whether to start a film.
        video_length: frames of a film.
        name_prefix: a film is called ``{name_prefix}-step-{start}-to-step-{start + video_length}.mp4``.

    Raises:
        TypeError: ``record_video_trigger`` is no function.
        ValueError: for another render mode, or a ``video_length`` below 1.
        ImportError: without imageio and ffmpeg.
    """

    passes_on = ("observations", "rewards")
    state_attributes = ()

    def __init__(
        self,
        venv: VecEnv,
        video_folder: str | os.PathLike[str],
        record_video_trigger: Callable[[int], bool],
        video_length: int = 200,
        name_prefix: str = "rl-video",
    ):
        super().__init__(venv)
        if self.render_mode != "rgb_array":
            raise ValueError(
                f"The render_mode must be 'rgb_array' to record videos, got {self.render_mode!r}. "
                "Pass render_mode='rgb_array' when making the environments."
            )
        if not callable(record_video_trigger):
            raise TypeError(
                f"record_video_trigger={record_video_trigger!r} must be a function of the number of steps: "
                "lambda step: step % 1000 == 0."
            )
        check_size("video_length", video_length)
        _import_imageio()
        self.video_folder = os.path.abspath(os.path.expanduser(video_folder))
        self.record_video_trigger = record_video_trigger
        self.video_length = video_length
        self.name_prefix = name_prefix
        self.frames_per_sec = venv.attr_of_first("metadata", venv.metadata).get("render_fps", 30)
        self.step_id = 0
        self.recorded_frames = 0
        self.recording = False
        self.video_path = ""
        self._writer: Any = None
        make_folder(self.video_folder, "video_folder")

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        self._film()
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        result = self.venv.step_wait()
        self.step_id += 1
        self._film()
        return result

    def _film(self) -> None:
        if not self.recording and self.record_video_trigger(self.step_id):
            self._start_recording()
        if not self.recording:
            return
        frame = self.venv.render()
        if frame is None:  # as in the peer, training continues
            warn_user("The environments returned no image from render(): the recording stops, and the video with it.")
            self._stop_recording()
            return
        self._writer.append_data(_even(frame))
        self.recorded_frames += 1
        if self.recorded_frames >= self.video_length:
            self._stop_recording()

    def _start_recording(self) -> None:
        name = f"{self.name_prefix}-step-{self.step_id}-to-step-{self.step_id + self.video_length}.mp4"
        self.video_path = os.path.join(self.video_folder, name)
        # macro_block_size=1: frames keep their size (the encoding requires only even numbers).
        get_writer = _import_imageio().get_writer
        self._unfinished = Unfinished(Path(self.video_path))
        self._writer = get_writer(self._unfinished.at, fps=self.frames_per_sec, codec="libx264", macro_block_size=1)
        self.recorded_frames = 0
        self.recording = True

    def _stop_recording(self) -> None:
        if not self.recording:
            return
        self.recording = False
        self._writer.close()
        self._writer = None
        if self.recorded_frames:
            self._unfinished.finish()
        else:
            self._unfinished.drop()

    def close(self) -> None:
        self._stop_recording()
        self.venv.close()


def _even(frame: np.ndarray) -> np.ndarray:
    """Pad an image ``(H, W, C)`` with black to even height and width."""
    height, width, _ = frame.shape
    if height % 2 == 0 and width % 2 == 0:
        return frame
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)))


def _import_imageio() -> Any:
    why = "VecVideoRecorder needs imageio and ffmpeg"
    needed("imageio_ffmpeg", why, "video")
    return needed("imageio", why, "video")
