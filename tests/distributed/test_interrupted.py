"""An exception at any line of what speaks to runners, shards and learners: the next ``learn()`` works."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak import distributed
from polyak.compat.rllib_face import PPOConfig, processes
from polyak.distributed import ray_workers
from polyak.distributed.local_workers import LocalWorkers
from polyak.distributed.ray_workers import Workers
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.worlds import World

ROOMS = tuple(str(Path(room.__file__).parent) for room in (distributed, processes))
MOST_ANSWERS = 2_000
"""Waits for answers within one call of ``learn``, far more than it takes."""
SMALL: dict[str, Any] = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4]}}
RUNNERS: dict[str, Any] = {**SMALL, "n_runners": 2}
Point = tuple[str, int]


class Counting(World):
    """Shows how many steps of the episode are made, which is the reward, too."""

    fails_at: ClassVar[int | None] = None
    observation_space, length, truncates = spaces.Box(0, 100, (1,), np.float32), 7, True

    def look(self) -> np.ndarray:
        return np.full(1, self.t, np.float32)

    def act(self, action: Any) -> float:
        if self.t - 1 == self.fails_at:
            raise OSError("the simulator is gone")
        return float(self.t)


class Interrupting:
    """Raises at a line of the room: where it is reached for the first or for the last time of a run."""

    def __init__(self) -> None:
        self.seen: dict[Point, int] = {}
        self.point: Point | None = None
        self.after = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOMS) or in_another_process(frame):
            return None
        if event == "line":
            point = frame.f_code.co_filename, frame.f_lineno
            self.seen[point] = self.seen.get(point, 0) + 1
            if point == self.point and self.seen[point] > self.after:
                raise KeyboardInterrupt
        return self

    def run(self, action: Callable[[], Any], point: Point | None = None, after: int = 0) -> bool:
        """Whether it was interrupted at the point, which was reached ``after`` times before."""
        self.seen, self.point, self.after = {}, point, after
        before = sys.gettrace()
        sys.settrace(self)
        try:
            action()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def in_another_process(frame: FrameType | None) -> bool:
    """Whether something would be done there, were there any."""
    while frame is not None and not frame.f_code.co_filename.endswith(("_process.py", "_worker.py")):
        frame = frame.f_back
    return frame is not None


class Patience:
    """Waiting without an end is an error."""

    def __init__(self) -> None:
        self.waits = 0

    def around(self, answers: Callable[..., Any]) -> Callable[..., Any]:
        def counted(workers: Any, wait: bool = True) -> Any:
            self.waits += 1
            assert self.waits < MOST_ANSWERS, "it waits for answers that never come"
            return answers(workers, wait)

        return counted


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patience]:
    """Ray without processes."""
    fake, made = FakeRay(), Patience()
    monkeypatch.setattr(ray_workers, "ray", lambda: fake)
    for kind in (Workers, LocalWorkers):
        monkeypatch.setattr(kind, "answers", made.around(kind.answers))
    yield made
    gc.collect()  # shards end before Ray is real again


def interrupt(action: Callable[[], Any], patience: Patience, every: int) -> None:
    """Interrupt something at some of the lines that it reaches; it works after each."""

    def patiently() -> None:
        patience.waits = 0
        action()

    patiently()
    trace, interrupted = Interrupting(), 0
    trace.run(patiently)
    chosen = [(point, after) for point, times in trace.seen.items() for after in sorted({0, times - 1})][::every]
    for point, after in chosen:
        interrupted += trace.run(patiently, point, after)
        patiently()
    assert interrupted > len(chosen) / 2


def interrupt_learning(model: Any, steps: int, patience: Patience, check: Callable[[Any], None], every: int) -> None:
    def learn() -> None:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        assert model.num_timesteps >= before + steps
        check(model)

    interrupt(learn, patience, every)
    model.env.close()


everywhere = pytest.param(1, marks=pytest.mark.slow)
some = pytest.mark.parametrize("every", [50, everywhere])
transports = pytest.mark.parametrize("transport", ["ray", pytest.param("local", marks=pytest.mark.slow)])


@some
@transports
def test_runners(patience: Patience, transport: str, every: int) -> None:
    """Each row of a rollout continues the one before."""

    def check(model: Any) -> None:
        buffer = model.rollout_buffer
        parts = buffer.observations, buffer.episode_starts > 0
        seen, starts = (part.reshape(-1, buffer.buffer_size).T for part in parts)
        np.testing.assert_array_equal(seen[1:], np.where(starts[1:], 0, seen[:-1] + 1))

    model = polyak.PPO("MlpPolicy", Counting, n_steps=4, batch_size=4, n_epochs=1, transport=transport, **RUNNERS)
    interrupt_learning(model, 8, patience, check, every)


@some
@transports
@pytest.mark.parametrize("asynchronous", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_runners_that_collect_each_by_itself(
    patience: Patience, transport: str, asynchronous: bool, every: int
) -> None:
    def check(model: Any) -> None:
        for rollout in model.collector.rollouts:
            seen, starts = rollout.buffer.observations[:, 0, 0], rollout.buffer.episode_starts[:, 0] > 0
            np.testing.assert_array_equal(seen[1:], np.where(starts[1:], 0, seen[:-1] + 1))

    own: Any = {"n_steps": 4, "asynchronous": asynchronous, "transport": transport}
    interrupt_learning(polyak.IMPALA("MlpPolicy", Counting, **own, **RUNNERS), 8, patience, check, every)


@some
@transports
@pytest.mark.parametrize("options", [{"prioritized": True}, pytest.param({"overlap": True}, marks=pytest.mark.slow)])
def test_shards(patience: Patience, transport: str, options: Any, every: int) -> None:
    """No return of several steps reaches across what was lost: all steps of it were made."""

    def check(model: Any) -> None:
        for batch, _ in model.replay_buffer.transitions(50, 0.5):
            first, steps = batch.observations[:, 0], batch.next_observations[:, 0] - batch.observations[:, 0]
            assert ((steps >= 1) & (steps <= 3)).all()
            expected = sum(torch.where(steps > n, (first + n + 1) * 0.5**n, 0.0) for n in range(3))
            torch.testing.assert_close(batch.rewards.flatten(), expected)

    own: Any = {"n_replay_shards": 2, "transport": transport, "learning_starts": 0, "batch_size": 4, "n_steps": 3}
    own |= {"buffer_size": 60, "gamma": 0.5, "train_freq": 4, "gradient_steps": -1}
    model = polyak.DQN("MlpPolicy", Counting, **own, **options, **RUNNERS)
    interrupt_learning(model, 8, patience, check, every)


@some
def test_learners(patience: Patience, every: int) -> None:
    """All are the same after each step."""

    def check(model: Any) -> None:
        (fellow,) = model._learners.fellows._fellows
        for own, other in zip(model.policy.parameters(), fellow.learner.policy.parameters(), strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=0)

    own: Any = {"n_learners": 2, "transport": "local", "n_steps": 8, "batch_size": 4, "n_epochs": 1}
    model = polyak.PPO("MlpPolicy", Counting(), **own, **SMALL)
    interrupt_learning(model, 8, patience, check, every)


@some
def test_evaluators(patience: Patience, every: int) -> None:
    config = PPOConfig().environment("CartPole-v1").evaluation(evaluation_num_env_runners=2, evaluation_duration=3)
    config.env_runners(num_env_runners=0).rl_module(model_config={"fcnet_hiddens": [4]})
    with config.build() as algo:

        def evaluate() -> None:
            assert algo.evaluate()["env_runners"]["num_episodes"] == 3

        interrupt(evaluate, patience, every)


@pytest.mark.parametrize("transport", ["ray", "local"])
def test_an_error_of_an_environment_ends_one_training_and_not_the_next(
    patience: Patience, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a request that was made ahead is forgotten, and the model can be saved meanwhile."""
    own: Any = {"transport": transport, "learning_starts": 0, "batch_size": 4, "train_freq": 4, "gradient_steps": -1}
    model = polyak.DQN("MlpPolicy", Counting, overlap=True, **own, **RUNNERS).learn(8)
    monkeypatch.setattr(Counting, "fails_at", 3)
    with pytest.raises(OSError, match="the simulator is gone"):
        model.learn(8)
    monkeypatch.setattr(Counting, "fails_at", None)
    file = io.BytesIO()
    model.save(file, include=["replay_buffer"])
    assert polyak.DQN.load(io.BytesIO(file.getvalue())).num_timesteps == model.num_timesteps
    assert model.learn(8, reset_num_timesteps=False).num_timesteps >= 8


def test_a_question_that_fails_disturbs_nothing(patience: Patience) -> None:
    model = polyak.IMPALA("MlpPolicy", Counting, n_steps=4, asynchronous=False, **RUNNERS)
    model.learn(8)
    seen = model.runner.obs
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        model.env.get_attr("nothing_of_this_name")
    assert model.env.get_attr("fails_at") == [None, None]
    assert model.runner.obs is seen
