"""SubprocVecEnv: same results as DummyVecEnv, and no failure that hangs, hides its cause or leaves something behind."""

import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

from polyak import PPO
from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.testing import BitFlippingEnv, IdentityEnvMultiBinary, IdentityEnvMultiDiscrete, SimpleMultiObsEnv
from polyak.envs.vec.seeds import seeds_of
from polyak.envs.vec.subproc import EnvTimeoutError, EnvWorkerError, SubprocVecEnv
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.monitor import Monitor
from tests.pairs import one_of_each
from tests.processes import PATIENCE, assert_gone
from tests.warm import python

START_METHODS = ["fork", "forkserver", "spawn"]
SLOWLY = ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("forkserver", "spawn"))]
LINUX = sys.platform.startswith("linux")


def subproc(env_fns, **kwargs) -> SubprocVecEnv:
    return SubprocVecEnv(env_fns, **{"start_method": "fork", "timeout": PATIENCE, **kwargs})


def workers_of(venv: SubprocVecEnv) -> list[int]:
    return [process.pid for process in venv.processes]


def assert_same(first, second) -> None:
    """Equal in structure, types of arrays and every bit."""
    if isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, (np.ndarray, np.generic)):
        assert first.dtype == second.dtype
        assert first.shape == second.shape
        assert first.tobytes() == second.tobytes()
    else:
        assert type(first) is type(second)
        assert first == second


# --- same as DummyVecEnv --------------------------------------------------------------------------------------------


class Talkative(gym.Wrapper):
    """Puts changing content into every info, also that of reset."""

    def reset(self, **kwargs):
        self.count = 0
        obs, _ = self.env.reset(**kwargs)
        return obs, {"start": float(np.sum(obs)), "options": kwargs.get("options")}

    def step(self, action):
        self.count += 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "count": self.count, "array": np.full(2, self.count)}


class Counting(gym.Wrapper):
    """Puts numbers of several types into its infos, and now and then something else."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        info = {"x": np.float64(obs[0]), "v": float(obs[1]), "n": np.int32(action), "flag": True, "lives": 3}
        info |= {"bit": np.bool_(False), "small": np.float32(0.1), "nan": np.float64("nan")}
        info |= {"long": np.int64(2**62), "byte": np.uint8(200)}
        others = [{}, {"v": 0.5}, {"text": "a"}, {1: 2}, {"array": np.arange(3)}, dict(reversed(info.items()))]
        others += [{**info, "lives": 3.0}, {**info, "lives": 2**80}, {**info, "more": {"deep": [1, None]}}]
        if self.np_random.random() < 0.3:
            info = others[self.np_random.integers(len(others))]
        return obs, reward, terminated, truncated, info


def named(env_id, wrapper=None, **kwargs):
    env = gym.make(env_id, **kwargs)
    return env if wrapper is None else wrapper(env)


KINDS = {
    "cartpole": partial(named, "CartPole-v1", max_episode_steps=30),
    "numbers": partial(named, "CartPole-v1", Counting, max_episode_steps=15),
    "infos": partial(named, "CartPole-v1", Talkative, max_episode_steps=15),
    "pendulum": partial(named, "Pendulum-v1", max_episode_steps=20),
    "dict": SimpleMultiObsEnv,
    "goals": partial(BitFlippingEnv, n_bits=4, continuous=True),
    "discrete goals": partial(BitFlippingEnv, n_bits=4, discrete_obs_space=True),
    "multi discrete": partial(IdentityEnvMultiDiscrete, 3, ep_length=7),
    "multi binary": partial(IdentityEnvMultiBinary, 3, ep_length=7),
}


def compare_with_dummy(env_fn, n_envs=5, steps=60, cast=None, **kwargs) -> None:
    dummy, ours = DummyVecEnv([env_fn] * n_envs), subproc([env_fn] * n_envs, **kwargs)
    with ours:
        assert ours.observation_space == dummy.observation_space
        assert ours.action_space == dummy.action_space
        dummy.action_space.seed(0)
        ended = 0
        for seed in (3, None):  # seeded, and continuing from there
            if seed is not None:
                assert ours.seed(seed) == dummy.seed(seed)
            assert_same(dummy.reset(), ours.reset())
            assert_same(dummy.reset_infos, ours.reset_infos)
            for _ in range(steps):
                actions = np.stack([dummy.action_space.sample() for _ in range(n_envs)])
                if cast is not None:
                    actions = actions.astype(cast)
                theirs, mine = dummy.step(actions), ours.step(actions)
                assert_same(theirs, mine)
                assert_same(dummy.reset_infos, ours.reset_infos)
                ended += int(mine[2].sum())
        assert ended > 0


@pytest.mark.parametrize("kind", KINDS)
def test_same_as_dummy(kind):
    compare_with_dummy(KINDS[kind], n_workers=2, step_in_caller=kind in ("numbers", "dict", "multi discrete"))


@pytest.mark.parametrize("start_method", one_of_each(START_METHODS, "spawn"))
def test_same_as_dummy_with_every_start_method(start_method):
    compare_with_dummy(KINDS["infos"], n_workers=2, start_method=start_method, step_in_caller=True)


@pytest.mark.parametrize("cast", [np.float64, np.float16])
def test_actions_of_another_type_arrive_unchanged(cast):
    compare_with_dummy(KINDS["pendulum"], n_envs=2, steps=25, cast=cast)


class DictActions(gym.Env):
    observation_space = spaces.Box(-10, 10, (1,))
    action_space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (1,)))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return action["b"] + action["a"], 0.0, False, False, {}


def test_actions_that_are_no_arrays():
    with subproc([DictActions] * 3, n_workers=2) as venv:
        venv.reset()
        obs, *_ = venv.step([{"a": index, "b": np.float32([0.5])} for index in range(3)])
        np.testing.assert_array_equal(obs, [[0.5], [1.5], [2.5]])


class Keeps(gym.Env):
    """Shows the action before the last one, which it kept without copying."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.kept = np.zeros(2, np.float32)
        return self.kept, {}

    def step(self, action):
        before, self.kept = self.kept, action
        return before, 0.0, False, False, {}


def test_an_env_may_keep_its_action():
    with subproc([Keeps] * 2) as venv:
        venv.reset()
        for step in range(4):
            obs, *_ = venv.step(np.full((2, 2), step / 10, np.float32))
            np.testing.assert_array_equal(obs, np.full((2, 2), max(step - 1, 0) / 10, np.float32))


def test_results_are_not_changed_by_later_steps():
    with subproc([KINDS["cartpole"]] * 2) as venv:
        first = venv.reset()
        results = [venv.step(np.zeros(2, np.int64)) for _ in range(5)]
        copies = [tuple(part.copy() for part in result[:3]) for result in results]
        kept = first.copy()
        for _ in range(20):
            venv.step(np.ones(2, np.int64))
        np.testing.assert_array_equal(first, kept)
        for result, copy in zip(results, copies, strict=True):
            assert_same(result[:3], copy)


def test_options_and_seeds_are_used_once():
    with subproc([KINDS["infos"]] * 3, n_workers=2) as venv:
        venv.seed(5)
        venv.set_options([{"low": -0.01 * place, "high": 0.01} for place in range(1, 4)])
        first = venv.reset()
        assert [info["options"]["low"] for info in venv.reset_infos] == [-0.01, -0.02, -0.03]
        venv.reset()
        assert [info["options"] for info in venv.reset_infos] == [None] * 3
        venv.seed(5)
        venv.set_options([{"low": -0.01 * place, "high": 0.01} for place in range(1, 4)])
        np.testing.assert_array_equal(venv.reset(), first)


# --- workers --------------------------------------------------------------------------------------------------------


def test_envs_are_spread_over_workers():
    fns = [KINDS["cartpole"]] * 5
    with subproc(fns, n_workers=2) as venv:
        pids = [process.pid for process in venv.processes]
        assert len(pids) == len(venv.remotes) == 2
        assert [worker.indices for worker in venv._workers] == [range(2), range(2, 5)]
        assert venv.num_envs == 5
    with subproc(fns, n_workers=99) as venv:
        assert len(venv.processes) == 5
    with subproc(fns) as venv:
        assert len(venv.processes) == min(5, len(os.sched_getaffinity(0)) if LINUX else os.cpu_count())


class OwnProcess(DictActions):
    """Says where it runs."""

    action_space = spaces.Discrete(10)

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {"pid": os.getpid()}


def test_only_the_first_block_runs_in_the_caller():
    with subproc([OwnProcess] * 5, n_workers=2) as venv:
        venv.reset()
        infos = venv.step(np.zeros(5, np.int64))[3]
        assert os.getpid() not in {info["pid"] for info in infos}
    with subproc([OwnProcess] * 5, n_workers=2, step_in_caller=True) as venv:
        assert len(venv.processes) == len(venv.remotes) == 1
        venv.reset()
        infos = venv.step(np.zeros(5, np.int64))[3]
        assert [info["pid"] for info in infos] == [os.getpid()] * 2 + [venv.processes[0].pid] * 3
    with subproc([OwnProcess] * 2, n_workers=1, step_in_caller=True) as venv:
        assert venv.processes == []
        venv.reset()
        assert {info["pid"] for info in venv.step(np.zeros(2, np.int64))[3]} == {os.getpid()}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"start_method": "illegal_method"}, "cannot find context for 'illegal_method'"),
        ({"n_workers": 0}, "n_workers must be at least 1, got 0"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"start_timeout": -1}, "start_timeout must be positive"),
        ({"env_fns": []}, "env_fns must hold at least one"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        SubprocVecEnv(**{"env_fns": [KINDS["cartpole"]], **kwargs})


def test_different_spaces_are_refused():
    with pytest.raises(ValueError, match="same observation space: environment 1 has"):
        subproc([KINDS["cartpole"], KINDS["pendulum"]])


@pytest.mark.parametrize(("n_workers", "step_in_caller"), [(1, False), (2, True), (4, True)])
def test_attributes_and_methods(n_workers, step_in_caller):
    fns = [partial(BitFlippingEnv, n_bits=3 + place, image_obs_space=True, continuous=False) for place in range(4)]
    fns = [lambda fn=fn: Monitor(gym.wrappers.TransformAction(fn(), lambda a: a, spaces.Discrete(3))) for fn in fns]
    with subproc(fns, n_workers=n_workers, step_in_caller=step_in_caller) as venv:
        assert venv.get_attr("n_bits") == [3, 4, 5, 6]
        assert venv.get_attr("n_bits", indices=2) == [5]
        assert venv.get_attr("n_bits", indices=[3, 0, 3]) == [6, 3, 6]
        assert venv.get_attr("n_bits", indices=-1) == [6]
        venv.set_attr("max_steps", 50, indices=[1, 2])
        assert venv.get_attr("max_steps") == [3, 50, 50, 6]
        assert venv.has_attr("max_steps")
        assert not venv.has_attr("nonsense")
        assert venv.env_is_wrapped(Monitor) == [True] * 4
        assert venv.env_is_wrapped(gym.wrappers.TimeLimit, indices=[0]) == [False]
        vectors = venv.env_method("convert_if_needed", np.ones(1), indices=[1, 3])
        assert [vector.shape for vector in vectors] == [(1, 36, 36)] * 2
        with pytest.raises(IndexError, match="between 0 and 3"):
            venv.get_attr("n_bits", indices=4)
        with pytest.raises(AttributeError, match="nonsense"):
            venv.get_attr("nonsense")
        assert venv.get_attr("n_bits", indices=0) == [3]  # still there


class Lambda(gym.Wrapper):
    """Has an attribute that only cloudpickle can send, and one that nothing can."""

    double = None

    def __init__(self, env):
        super().__init__(env)
        self.double = lambda x: 2 * x
        self.lock = __import__("threading").Lock()

    def apply(self, function):
        return function(3)


def test_what_can_be_sent():
    with subproc([partial(named, "CartPole-v1", Lambda)]) as venv:
        assert venv.get_attr("double")[0](4) == 8
        assert venv.env_method("apply", lambda x: x + 1) == [4]
        venv.set_attr("double", lambda x: 5 * x)
        assert venv.get_attr("double")[0](4) == 20
        with pytest.raises(EnvWorkerError, match=r"get_attr\('lock'\) cannot be sent"):
            venv.get_attr("lock")
        assert venv.reset().shape == (1, 4)


def test_render():
    with subproc([partial(BitFlippingEnv, render_mode=None)] * 2) as venv:
        assert venv.render_mode is None
        with pytest.warns(UserWarning, match="rgb_array"):
            assert venv.get_images() == [None, None]
    with subproc([partial(Images, place) for place in range(3)], n_workers=2) as venv:
        venv.reset()
        assert venv.render_mode == "rgb_array"
        assert [int(image.max()) for image in venv.get_images()] == [0, 1, 2]
        assert venv.render().shape == (8, 8, 3)
        assert venv.metadata == Images.metadata


class Images(DictActions):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}
    render_mode = "rgb_array"

    def __init__(self, place):
        self.place = place

    def render(self):
        return np.full((4, 4, 3), self.place, np.uint8)


def test_wrong_order_of_calls():
    venv = subproc([KINDS["cartpole"]] * 2)
    actions = np.zeros(2, np.int64)
    venv.reset()
    with pytest.raises(RuntimeError, match=r"step_wait\(\) was called without step_async"):
        venv.step_wait()
    venv.step_async(actions)
    assert venv.waiting
    for call in (venv.reset, partial(venv.step_async, actions), partial(venv.get_attr, "spec")):
        with pytest.raises(RuntimeError, match="while a step is under way"):
            call()
    venv.step_wait()
    assert not venv.waiting
    with pytest.raises(ValueError, match=r"one action per environment \(2\), got 1"):
        venv.step(np.zeros(1, np.int64))
    venv.close()
    venv.close()
    assert venv.closed
    for call in (venv.reset, partial(venv.step, actions), partial(venv.get_attr, "spec"), venv.step_wait):
        with pytest.raises(RuntimeError, match="after the SubprocVecEnv was closed"):
            call()


# --- failures -------------------------------------------------------------------------------------------------------


class Misbehaves(gym.Env):
    """Does something bad when the action asks for it, or at a chosen moment."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(10)

    def __init__(self, when=None, what=None):
        self.when, self.what = when, what
        self._maybe("init")

    def _maybe(self, moment):
        if moment == self.when:
            self.misbehave(self.what)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._maybe("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if action == 7:
            self._maybe("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def misbehave(self, what):
        if what == "raise":
            return self.deep_inside(3)
        if what == "sys.exit":
            sys.exit("the environment had enough")
        if what == "interrupt":
            raise KeyboardInterrupt("the environment wants an end")
        if what == "exit":
            os._exit(3)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            while True:
                time.sleep(0.1)
        if what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise AssertionError(what)

    def deep_inside(self, depth):
        if depth == 0:
            raise ZeroDivisionError("the user's own message")
        return self.deep_inside(depth - 1)

    def close(self):
        self._maybe("close")


def fails(index, when, what, n_envs=4):
    """Functions that make environments, of which the one at ``index`` misbehaves."""
    return [partial(Misbehaves, *((when, what) if place == index else ())) for place in range(n_envs)]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


SEVENS = np.array([1, 1, 7, 1])


@pytest.mark.parametrize("start_method", SLOWLY)
def test_exception_in_step_arrives_whole(start_method):
    fns = fails(2, "step", "raise")
    venv = subproc(fns, n_workers=2, start_method=start_method)
    processes = workers_of(venv)
    venv.seed(40)
    venv.reset()
    venv.step(np.zeros(4, np.int64))
    with pytest.raises(EnvWorkerError, match=r"Environment 2 raised in step\(\): ZeroDivisionError") as caught:
        venv.step(SEVENS)
    error = caught.value
    assert (error.env_index, error.seed, error.action) == (2, seeds_of(40, 3)[2], 7)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert str(error.__cause__) == "the user's own message"
    for text in (
        "the user's own message",
        "deep_inside(depth - 1)",
        f"last seed {seeds_of(40, 3)[2]}",
        "last action",
        "test_subproc.py",
    ):
        assert text in str(error)
    assert "deep_inside" in error.remote_traceback
    assert venv.closed
    assert_gone(processes)


@pytest.mark.parametrize("index", [0, 1, 3])
def test_exception_beside_or_in_the_block_of_the_caller(index):
    fns = fails(index, "step", "raise")
    venv = subproc(fns, n_workers=2, step_in_caller=True)
    processes = workers_of(venv)
    venv.seed(40)
    venv.reset()
    with pytest.raises(EnvWorkerError, match=rf"(?s)Environment {index} raised in step\(\).*deep_inside") as caught:
        venv.step(np.full(4, 7))
    assert (caught.value.env_index, caught.value.seed, caught.value.action) == (
        index,
        seeds_of(40, index + 1)[index],
        7,
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert venv.closed
    assert_gone(processes)


@pytest.mark.parametrize("what", ["kill", "hang"])
def test_worker_dies_or_hangs_beside_the_block_of_the_caller(what):
    fns = fails(2, "step", what)
    venv = subproc(fns, n_workers=2, step_in_caller=True)
    processes = workers_of(venv)
    venv.reset()
    venv.step_async(SEVENS)
    while what == "hang" and venv._running[1] != 2:
        time.sleep(0.01)
    venv.timeout = 0.5 if what == "hang" else PATIENCE
    with pytest.raises(EnvWorkerError, match=r"nvironments? 2.* (died|gave no answer)") as caught:
        venv.step_wait()
    assert caught.value.env_index == 2
    assert_gone(processes)


def test_interrupt_in_the_block_of_the_caller():
    class Interrupted(Misbehaves):
        def step(self, action):
            if action == 7:
                raise KeyboardInterrupt
            return super().step(action)

    with subproc([Interrupted, Misbehaves, Misbehaves, Misbehaves], n_workers=2, step_in_caller=True) as venv:
        venv.reset()
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.array([7, 1, 1, 1]))
        assert not venv.closed
        assert venv.step(np.zeros(4, np.int64))[0].shape == (4, 2)


@pytest.mark.parametrize(("when", "what"), [("init", "raise"), ("init", "sys.exit"), ("reset", "interrupt")])
def test_exception_elsewhere(when, what):
    before = children()
    fns = fails(1, when, what)
    doing = {"init": "while being built", "reset": r"in reset\(\)"}[when]
    kind = {
        "raise": "ZeroDivisionError: the user's own message",
        "sys.exit": "SystemExit: the environment had",
        "interrupt": "KeyboardInterrupt: the environment wants an end",
    }[what]
    with pytest.raises(EnvWorkerError, match=f"Environment 1 raised {doing}: {kind}") as caught:
        subproc(fns, n_workers=2).reset()
    assert caught.value.env_index == 1
    assert_gone(children() - before)


def test_exception_in_a_method_leaves_the_workers_running():
    with subproc([Misbehaves] * 4, n_workers=2) as venv:
        venv.reset()
        with pytest.raises(
            EnvWorkerError, match=r"(?s)Environment 3 raised in env_method\('misbehave'\).*deep_inside"
        ) as caught:
            venv.env_method("misbehave", "raise", indices=[3])
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(EnvWorkerError, match="Environment 0"):
            venv.env_method("misbehave", "raise")
        assert venv.step(np.zeros(4, np.int64))[0].shape == (4, 2)


@pytest.mark.parametrize("what", ["exit", "kill"])
@pytest.mark.parametrize("start_method", SLOWLY)
def test_death_in_step(start_method, what):
    fns = fails(2, "step", what)
    venv = subproc(fns, n_workers=2, start_method=start_method, timeout=None)
    processes = workers_of(venv)
    venv.seed(40)
    venv.reset()
    how = {"exit": "exit code 3", "kill": "killed by SIGKILL.*memory runs out"}[what]
    with pytest.raises(EnvWorkerError, match=f"(?s)environment 2, died during step.*{how}") as caught:
        venv.step(SEVENS)
    assert (caught.value.env_index, caught.value.seed, caught.value.action) == (2, seeds_of(40, 3)[2], 7)
    assert_gone(processes)


@pytest.mark.parametrize("when", ["init", "reset"])
def test_death_elsewhere(when):
    fns = fails(0, when, "exit", n_envs=1)
    with pytest.raises(EnvWorkerError, match=r"environment 0.*died during .*exit code 3"):
        subproc(fns).reset()


def test_death_from_outside_between_two_calls():
    venv = subproc([Misbehaves] * 4, n_workers=2)
    processes = workers_of(venv)
    venv.reset()
    os.kill(venv.processes[1].pid, signal.SIGKILL)
    venv.processes[1].join()
    with pytest.raises(EnvWorkerError, match="environments 2-3 died .*SIGKILL"):
        venv.step(np.zeros(4, np.int64))
    assert_gone(processes)


@pytest.mark.skipif(not LINUX, reason="forks")
def test_death_is_noticed_although_a_grandchild_holds_the_channel(tmp_path):
    end = tmp_path / "end"

    class LeavesAChild(Misbehaves):
        def step(self, action):
            if os.fork() == 0:
                while not end.exists():
                    time.sleep(0.05)
                os._exit(0)
            os._exit(3)

    venv = subproc([LeavesAChild], timeout=None)
    venv.reset()
    with pytest.raises(EnvWorkerError, match="exit code 3"):
        venv.step(np.zeros(1, np.int64))
    end.touch()


def hung_step(venv: SubprocVecEnv) -> None:
    """A step whose limit of 0.4 seconds begins when environment 1 hangs in the first worker, which is asked first."""
    venv.step_async(np.array([1, 7, 1, 1]))
    while venv._running[0] != 1:
        time.sleep(0.01)
    venv.timeout = 0.4
    venv.step_wait()


@pytest.mark.parametrize("what", ["hang", "stop"])
def test_hang_in_step(what):
    fns = fails(1, "step", what)
    venv = subproc(fns, n_workers=2)
    processes = workers_of(venv)
    venv.reset()
    with pytest.raises(EnvTimeoutError, match=r"Environment 1 gave no answer to step\(\) within timeout=0.4") as caught:
        hung_step(venv)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.action == 7
    assert_gone(processes)


@pytest.mark.parametrize("when", ["init", "reset", "method"])
def test_hang_elsewhere(when):
    fns = fails(0, when, "hang", n_envs=1)
    with pytest.raises(EnvTimeoutError, match="no answer to"):
        venv = subproc(fns, start_timeout=0.4 if when == "init" else PATIENCE)
        if when == "reset":
            venv.timeout = 0.4
        venv.reset()
        venv.timeout = 0.4
        venv.env_method("misbehave", "hang")


def test_hang_in_close_is_ended(monkeypatch):
    monkeypatch.setattr("polyak.envs.vec.subproc._GRACE", 0.5)
    fns = fails(1, "close", "hang", n_envs=2)
    venv = subproc(fns, n_workers=2)
    processes = workers_of(venv)
    venv.reset()
    venv.close()
    assert_gone(processes)


def test_wrong_shape_and_unsendable_info():
    class Wrong(Misbehaves):
        def step(self, action):
            obs = np.zeros(3 if action == 7 else 2, np.float32)
            return obs, 0.0, False, False, {"lock": __import__("threading").Lock()} if action == 8 else {}

    for action, message in ((7, r"(?s)Environment 2 raised.*\(3,\).*\(2,\)"), (8, "info dict of environments 2 to 3")):
        venv = subproc([Wrong] * 4, n_workers=2)
        venv.reset()
        with pytest.raises(EnvWorkerError, match=message):
            venv.step(np.array([1, 1, action, 1]))


def test_interrupt_loses_a_step_but_not_the_workers(monkeypatch):
    with subproc([KINDS["infos"]] * 4, n_workers=2) as venv:
        venv.seed(0)
        first = venv.reset()
        receive = venv.remotes[1].receive
        monkeypatch.setattr(venv.remotes[1], "receive", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.zeros(4, np.int64))
        monkeypatch.setattr(venv.remotes[1], "receive", receive)
        assert not venv.closed
        venv.step(np.zeros(4, np.int64))
        assert venv.get_attr("count") == [2] * 4  # both steps were made
        venv.seed(0)
        np.testing.assert_array_equal(venv.reset(), first)


# --- nothing is left behind -----------------------------------------------------------------------------------------


def shared_blocks() -> int:
    with open("/proc/self/maps") as maps:
        return sum("polyak-vec-env" in line for line in maps)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
@pytest.mark.parametrize(
    ("end", "step_in_caller"), [("close", True), ("error", False), ("collected", False), ("collected", True)]
)
def test_no_process_and_no_memory_left(end, step_in_caller):
    gc.collect()
    before, descriptors = shared_blocks(), psutil.Process().num_fds()
    fns = fails(2, "step", "raise")
    venv: VecEnv | None = subproc(fns, n_workers=2, step_in_caller=step_in_caller)
    processes = workers_of(venv)
    venv.reset()
    assert shared_blocks() == before + 1
    if end == "close":
        venv.close()
    elif end == "error":
        with pytest.raises(EnvWorkerError):
            venv.step(SEVENS)
    else:
        venv = None
    gc.collect()
    assert_gone(processes)
    assert shared_blocks() == before
    del venv
    gc.collect()
    assert psutil.Process().num_fds() <= descriptors


class Garbage:
    """Refers to itself, so that only the garbage collector ends it; notes which process that was."""

    def __init__(self, file):
        self.itself, self.file = self, file

    def __del__(self):
        with open(self.file, "a") as notes:
            notes.write(f"{os.getpid()}\n")


class Collecting(DictActions):
    action_space = spaces.Discrete(2)

    def __init__(self):
        gc.collect()

    def step(self, action):
        gc.collect()
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_garbage_of_the_parent_is_not_finalized_in_a_fork(tmp_path):
    gc.disable()
    try:
        Garbage(tmp_path / "notes")
        with subproc([Collecting], start_method="fork") as venv:
            venv.reset()
            venv.step(np.zeros(1, np.int64))
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "notes").read_text().split() == [str(os.getpid())]


PARENT = """
    import sys, time, os
    sys.path[:0] = {path!r}
    import numpy as np
    from test_subproc import Misbehaves
    from polyak.envs.vec.subproc import SubprocVecEnv

    if __name__ == "__main__":
        other = SubprocVecEnv([Misbehaves] * 2, start_method={start_method!r}, n_workers=2)
        venv = SubprocVecEnv([lambda: Misbehaves("step", "hang")] * 2, start_method={start_method!r}, n_workers=2)
        venv.reset()
        print(*(process.pid for process in [*venv.processes, *other.processes]), flush=True)
        if {hang}:
            venv.step_async(np.array([7, 7]))
            time.sleep(0.2)
        {end}
"""


def run_script(tmp_path, text, run=python, **kwargs):
    script = tmp_path / "script.py"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = [root, os.path.dirname(os.path.abspath(__file__))]
    script.write_text(textwrap.dedent(text.format(path=path, **kwargs)))
    return run([script])


@pytest.mark.parametrize("start_method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
@pytest.mark.parametrize("hang", one_of_each([False, True], True))
def test_workers_end_with_a_killed_parent(tmp_path, start_method, hang):
    done = run_script(tmp_path, PARENT, start_method=start_method, hang=hang, end="os.kill(os.getpid(), 9)")
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 4, done.stderr
    assert_gone(pids)


def test_script_may_end_without_close(tmp_path):
    def cold(words):  # whose end is that of any Python
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE)

    done = run_script(tmp_path, PARENT, cold, start_method="fork", hang=False, end="pass")
    assert done.returncode == 0
    assert done.stderr == ""
    assert_gone(map(int, done.stdout.split()))


UNGUARDED = """
    import sys
    sys.path[:0] = {path!r}
    from polyak.envs.vec.subproc import SubprocVecEnv
    from polyak.envs.testing import BitFlippingEnv

    SubprocVecEnv([BitFlippingEnv] * 4, start_method={start_method!r}, n_workers=4)
"""


@pytest.mark.parametrize("start_method", one_of_each(["forkserver", "spawn"], "forkserver"))
def test_missing_main_guard_is_explained(tmp_path, start_method):
    done = run_script(tmp_path, UNGUARDED, start_method=start_method)
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert 'Fix: move that code under `if __name__ == "__main__":`' in lines[-1]
    assert "script.py" in lines[-1]
    assert len(lines) < 25, done.stderr


def test_a_program_on_the_standard_input_has_workers():
    program = (
        "import gymnasium as gym\n"
        "from polyak.envs.vec.subproc import SubprocVecEnv\n"
        "class Own(gym.Wrapper): pass\n"
        "env = SubprocVecEnv([lambda: Own(gym.make('CartPole-v1'))])\n"
        "print(env.reset().shape, __file__)\n"
    )
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(1, 4) <stdin>\n", "")


def test_a_function_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def locked():
        return lock and Misbehaves()

    with pytest.raises(TypeError, match=r"env_fns\[2\]=<function .*locked.*cannot pickle.*within the function"):
        SubprocVecEnv([Misbehaves, Misbehaves, locked], n_workers=2)
    with pytest.raises(TypeError, match=r"env=<function .*locked.* cannot be sent to a worker process"):
        PPO("MlpPolicy", locked, n_runners=1)


# --- random numbers --------------------------------------------------------------------------------------------------


class GlobalDraws(gym.Env):
    """Shows a number of each global generator, which the environment does not seed."""

    observation_space = spaces.Box(0.0, 1.0, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self._draw(), {}

    def step(self, action):
        return self._draw(), 0.0, False, False, {}

    def _draw(self) -> np.ndarray:
        return np.array([random.random(), np.random.rand(), torch.rand(()).item()])


@pytest.mark.parametrize("start_method", SLOWLY)
def test_each_worker_draws_random_numbers_of_its_own(start_method):
    def drawn(seed: int | None) -> np.ndarray:
        before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
        with SubprocVecEnv([GlobalDraws] * 4, start_method=start_method, n_workers=2, timeout=60.0) as venv:
            if seed is not None:
                venv.seed(seed)
            draws = np.concatenate([venv.reset(), venv.step(np.zeros(4, int))[0]])
        assert random.getstate() == before[0]
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])
        assert torch.equal(torch.get_rng_state(), before[2])
        return draws

    first, second, other = drawn(7), drawn(7), drawn(8)
    np.testing.assert_array_equal(first, second)
    for generator in range(3):
        assert len(np.unique(first[:, generator])) == 8, "no two environments see the same number"
    assert not np.any(np.isin(first, other))
    assert len(np.unique(drawn(None)[:, 1])) == 8


KILLED = """
import os, signal
import psutil
from polyak.envs import SubprocVecEnv, make_vec_env

env = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=SubprocVecEnv)
env.reset()
for process in psutil.Process().children(recursive=True):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        process.send_signal(number)
env.step([0, 1])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_signals_are_left_to_the_parent_and_what_a_killed_one_leaves_is_deleted():
    with tempfile.TemporaryDirectory() as folder:  # sockets have short paths
        left = []
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": folder}, check=False)
            assert done.returncode == -signal.SIGKILL
            left.append(sorted(path.name for path in Path(folder).glob("p*-*-*")))
        assert [len(names) for names in left] == [1, 1]
        assert left[0] != left[1]
