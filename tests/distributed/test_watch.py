"""Environments that hang on a runner: an error that says so, or the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import polyak
from polyak.distributed import ray_workers
from polyak.distributed import watch as module
from polyak.distributed.runner_process import RunnerProcess
from polyak.distributed.watch import HangWatch
from polyak.envs.vec.subproc import EnvTimeoutError
from tests.compat.rllib_face.fake_ray import FakeRay

HANGS = """
import ctypes, time
from polyak.distributed.watch import HangWatch
import polyak.distributed.watch as watch
{}
watch = HangWatch(0.2, "runner 2")
with watch.over("step()"):
    {}
"""


def ends_of(hanging: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """A process in which environments do something for ever."""
    return subprocess.run(
        [sys.executable, "-c", HANGS.format(before, hanging)], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("hanging", ["time.sleep(1e6)", "while True: pass"])
@pytest.mark.skipif(os.name == "nt", reason="no signal reaches a thread there")
def test_what_the_interpreter_waits_for_is_interrupted(hanging: str) -> None:
    found = ends_of(hanging, "watch.faulthandler.dump_traceback_later = lambda *_, **__: None")
    message = "EnvTimeoutError: the environments of runner 2 gave no answer to step() within runner_timeout=0.2 seconds"
    assert message in found.stderr
    assert "Raise runner_timeout (None waits for ever)" in found.stderr


def test_what_the_interpreter_never_comes_back_from_ends_the_process() -> None:
    found = ends_of("ctypes.PyDLL(None).pause()" if os.name != "nt" else "ctypes.PyDLL('kernel32').Sleep(10**9)")
    assert found.returncode == 1
    assert "Timeout" in found.stderr


class Silent(HangWatch):
    """Looks when it is told to."""

    def __init__(self) -> None:
        self.limit, self.name, self._since = 60.0, "runner 1", None


def test_each_step_has_the_whole_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = Silent()
    with watch.over("step()"):
        for _ in range(3):
            now[0] += 50
            watch._interrupt(0, None)
            watch.restart()
        now[0] += 61
        with pytest.raises(EnvTimeoutError, match="runner 1 gave no answer to step"):
            watch._interrupt(0, None)
    watch._interrupt(0, None)


def test_a_runner_whose_environments_hang_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, own, hangs = FakeRay(), RunnerProcess._collected, [False]
    monkeypatch.setattr(ray_workers, "ray", lambda: fake)

    def collected(self: Any, order: Any) -> Any:
        if self.index == 1 and hangs.pop():
            hangs.insert(0, False)
            raise EnvTimeoutError("the environments of runner 2 gave no answer.")
        hangs.insert(0, False)
        return own(self, order)

    monkeypatch.setattr(RunnerProcess, "_collected", collected)
    options: Any = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu", "runner_timeout": None}
    model = polyak.PPO("MlpPolicy", "CartPole-v1", n_runners=2, **options).learn(32)
    hangs[0] = True
    with pytest.warns(
        RuntimeWarning, match="runner 2 of 2 is gone: the environments of runner 2 gave no answer. Anoth"
    ):
        model.learn(96, reset_num_timesteps=False)
    model.env.close()


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(3)])
def test_what_would_end_a_process_is_an_error_of_its_runner(
    monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    runner = RunnerProcess("CartPole-v1", 1, 0, alone=True)

    def work(*_: Any, **__: Any) -> None:
        raise ends

    monkeypatch.setattr(runner.env, "get_attr", work)
    with pytest.raises(
        RuntimeError, match=r"the environments of runner 2 raised (KeyboardInt|SystemExit\(3).* in get_attr"
    ):
        runner.ask_env("get_attr", [0], ("spec",), {})
