"""The time of a training is split into parts that add up, each where it belongs."""

import csv
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from polyak import A2C, DQN, PPO
from polyak.callbacks.callback import BaseCallback
from polyak.envs import make_vec_env
from polyak.experience import ReplayBuffer, RolloutBuffer
from polyak.logging.logger import configure
from tests.worlds import World

PARTS = ["env", "inference", "copy", "sample", "update", "other"]
STEPS = 40
MINIBATCHES = {A2C: STEPS // 5, PPO: STEPS // 4, DQN: STEPS}
ALGORITHMS = list(MINIBATCHES)


class Clock:
    """Stands still but for naps of a second, which only one part of the training takes."""

    def __init__(self) -> None:
        self.now, self.slow = 0.0, ""

    def __call__(self) -> float:
        return self.now

    def nap(self, part: str) -> None:
        self.now += part == self.slow


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    set_clock(monkeypatch, clock)
    return clock


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    for module in ("collecting.time_split", "collecting.runner"):
        monkeypatch.setattr(f"polyak.{module}.perf_counter", clock)


class Count(World):
    """Ten steps an episode; ``nap`` is called in each step and each reset."""

    length, pays = 10, 1.0

    def __init__(self, nap: Callable[[], Any] = int) -> None:
        self.nap = nap

    def look(self) -> np.ndarray:
        self.nap()
        return np.full(2, self.t / 10, np.float32)


def small(algorithm: Any, env: Any, **options: Any) -> Any:
    if algorithm is DQN:
        options |= {"learning_starts": 0, "train_freq": 1, "buffer_size": 100, "batch_size": 4}
        options |= {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
    if algorithm is PPO:
        options |= {"n_steps": 20, "batch_size": 4, "n_epochs": 1}
    return algorithm("MlpPolicy", env, policy_kwargs={"net_arch": [4]}, seed=0, device="cpu", **options)


def napping(clock: Clock, algorithm: Any) -> tuple[Any, BaseCallback]:
    """A model and a callback of which every part takes a nap when it works."""

    class Replay(ReplayBuffer):
        def add(self, *args: Any, **kwargs: Any) -> None:
            clock.nap("copy")
            super().add(*args, **kwargs)

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            clock.nap("sample")
            return super().sample(*args, **kwargs)

    class Rollout(RolloutBuffer):
        def add(self, *args: Any, **kwargs: Any) -> None:
            clock.nap("copy")
            super().add(*args, **kwargs)

        def get(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for rows in super().get(*args, **kwargs):
                clock.nap("sample")
                yield rows

    class Callback(BaseCallback):
        def _on_step(self) -> bool:
            clock.nap("other")
            return True

    buffer = {"replay_buffer_class": Replay} if algorithm is DQN else {"rollout_buffer_class": Rollout}
    model = small(algorithm, Count(lambda: clock.nap("env")), **buffer)
    to_env, update = model.policy.codec.to_env, model.learner.update

    def slow_to_env(actions: Any) -> Any:
        clock.nap("inference")
        return to_env(actions)

    def slow_update(batch: Any) -> Any:
        clock.nap("update")
        return update(batch)

    model.policy.codec.to_env, model.learner.update = slow_to_env, slow_update
    return model, Callback()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("slow", PARTS)
def test_what_is_slow_shows_under_its_name_only(algorithm: Any, slow: str, clock: Clock) -> None:
    model, callback = napping(clock, algorithm)
    clock.slow = slow
    model.learn(STEPS, callback=callback)
    naps = STEPS
    if slow == "env":
        naps += 1 + STEPS // 10  # resets
    elif slow in ("sample", "update"):
        naps = MINIBATCHES[algorithm]
    assert model.time_split == dict.fromkeys(PARTS, 0.0) | {slow: naps}


@pytest.mark.parametrize("algorithm", ALGORITHMS[:1])
def test_the_parts_are_no_longer_than_the_wall_time(algorithm: Any) -> None:
    model = small(algorithm, Count(lambda: time.sleep(1e-3)))
    assert model.time_split == dict.fromkeys(PARTS, 0.0)
    for _ in range(2):  # a second call begins anew
        began = time.perf_counter()
        model.learn(200)
        wall = time.perf_counter() - began
        assert sum(model.time_split.values()) <= wall
        assert model.time_split["env"] >= 0.2
        assert all(seconds > 0 for seconds in model.time_split.values())
    assert model.time_split == model.time_split  # it stands still


def test_it_can_be_read_while_the_model_learns(clock: Clock) -> None:
    model, _ = napping(clock, DQN)
    clock.slow = "env"
    seen = []

    class Read(BaseCallback):
        def _on_step(self) -> bool:
            seen.append(self.model.time_split["env"])
            return True

    model.learn(20, callback=Read())
    assert len(seen) == 20
    assert all(later - earlier in (1, 2) for earlier, later in itertools.pairwise(seen))


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_files_have_it_and_the_screen_one_line(algorithm: Any, tmp_path: Any, capsys: pytest.CaptureFixture) -> None:
    model = small(algorithm, Count(lambda: time.sleep(1e-3)), verbose=1)
    model.set_logger(configure(str(tmp_path), ["stdout", "csv"]))
    model.learn(80, log_interval=2)
    with open(tmp_path / "progress.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 2
    for row in rows:
        percents = [int(row[f"time/{name}"]) for name in PARTS]
        assert abs(sum(percents) - 100) <= 3  # each is rounded
        assert percents[0] > 0
    printed = capsys.readouterr().out.splitlines()
    assert not [line for line in printed if "inference" in line and line.startswith("|")]
    assert printed[-1].startswith("time: env ")
    assert [word.split()[0] for word in printed[-1].removeprefix("time: ").split(", ")] == PARTS
    small(algorithm, Count(), verbose=0).learn(20)
    assert capsys.readouterr().out == ""


def test_a_train_of_the_users_own_counts_as_update(clock: Clock) -> None:
    class Mine(DQN):
        def train(self, gradient_steps: int, batch_size: int = 256) -> None:
            clock.now += 1

    model = small(Mine, Count(), learning_starts=0, train_freq=1).learn(STEPS)
    assert model.time_split["update"] == STEPS


@pytest.mark.parametrize("name", ["collect", "_store"])
def test_an_override_of_a_step_that_models_do_not_have_is_said(name: str) -> None:
    with pytest.warns(UserWarning, match=rf"Mine\.{name}\(\) is never called: .*loop"):
        type("Mine", (DQN,), {name: lambda self: None})


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_nothing_learned_depends_on_the_clock(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for clock in (time.perf_counter, Clock()):
        set_clock(monkeypatch, clock)
        model = small(algorithm, make_vec_env("CartPole-v1", n_envs=2, seed=0)).learn(100)
        results.append(torch.cat([p.flatten() for p in model.policy.parameters()]))
    assert torch.equal(*results)
