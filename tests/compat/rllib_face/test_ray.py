"""Runners and learners in other processes, on Ray: the same numbers, and what happens when one of them breaks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.compat.rllib_face import Algorithm, APPOConfig, IMPALAConfig, MeanStdFilter, PPOConfig
from polyak.distributed import ray_workers
from polyak.distributed.runner_process import Chunk, Heading
from polyak.distributed.statistics import moments_in
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.compat.rllib_face.faulty_envs import Faulty
from tests.compat.rllib_face.on_ray import config, ray, session_of, trained, weights
from tests.processes import assert_gone

pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some
session = session_of(8)


# -- the same numbers --------------------------------------------------------------------------------------------------


def test_one_runner_and_one_learner_make_the_numbers_of_this_process() -> None:
    expected = trained(config())
    for runners, learners in ((1, 0), (1, 1)):
        np.testing.assert_array_equal(expected, trained(config(runners=runners, learners=learners)))


def test_filters_of_runners_are_brought_together() -> None:
    """One runner's to the bit; of two, every observation counts once."""
    expected = trained(config().env_runners(env_to_module_connector=MeanStdFilter(rewards=True)))
    found = trained(config(runners=1).env_runners(env_to_module_connector=MeanStdFilter(rewards=True)))
    np.testing.assert_array_equal(expected, found)
    with config(runners=2).env_runners(env_to_module_connector=MeanStdFilter()).build() as algo:
        algo.train()
        algo.train()
        own = moments_in(algo.model.get_env())
        assert own["obs_rms"]["count"] == pytest.approx(2 * 256 + 4, abs=1e-3), "and those of the first reset"
        assert own["ret_rms"]["count"] == pytest.approx(2 * 256, abs=1e-3)


@pytest.mark.parametrize("cls", [PPOConfig, IMPALAConfig])
def test_two_learners_of_a_half_each_learn_what_one_does_of_the_whole(cls: Any) -> None:
    def whole(learners: int) -> Any:
        made = config(cls, learners=learners, grad_clip=0.5)
        if cls is PPOConfig:
            made.training(minibatch_size=256 // max(1, learners), use_kl_loss=False)
        return made

    one, two = (trained(whole(learners)) for learners in (0, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=2e-6)


class Watched:
    """Ray, and what comes here through it."""

    def __init__(self) -> None:
        self.came: list[type] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def get(self, reference: Any) -> Any:
        found = ray.get(reference)
        self.came.append(type(found))
        return found


@pytest.mark.parametrize("cls", [PPOConfig, IMPALAConfig])
def test_two_learners_fetch_rows_from_two_runners(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And learn of them what one learner does here, with runners that take turns in this process."""

    def made(learners: int) -> Any:
        found = config(cls, runners=2, learners=learners)
        return found.training(minibatch_size=128 // max(1, learners)) if cls is PPOConfig else found

    watched, alone = Watched(), FakeRay()
    monkeypatch.setattr(ray_workers, "ray", lambda: watched)
    with made(2).build() as algo:
        algo.train()
        for _ in range(3):  # the first of them may learn of what was asked for before there were learners
            watched.came.clear()
            algo.train()
        assert Heading in watched.came
        assert Chunk not in watched.came, "rows came here"
        found = weights(algo)
    monkeypatch.setattr(ray_workers, "ray", lambda: alone)
    np.testing.assert_allclose(trained(made(0), 4), found, rtol=0, atol=2e-6)


def test_learners_that_cannot_share_evenly_do_not_wait_for_ever() -> None:
    made = config(learners=2).env_runners(num_envs_per_env_runner=3)
    with made.training(minibatch_size=32).build() as algo:
        before = weights(algo)
        result = algo.train()
        assert result["learners"]["__all_modules__"]["num_env_steps_trained"] > 0
        states = algo.learner_group.foreach_learner(_parameters)
        assert all(np.array_equal(a, b) for a, b in zip(*states, strict=True))
        assert not np.array_equal(before, weights(algo))


def test_gradient_steps_of_learners_elsewhere_are_compiled_where_that_is_asked_for() -> None:
    with config(learners=1).framework(torch_compile_learner=True).build() as algo:
        algo.train()
        assert algo.learner_group.foreach_learner(lambda learner: learner.engine.status) == ["compiled"]


def _parameters(learner: Any) -> list[np.ndarray]:
    return [p.detach().numpy() for p in learner.policy.parameters()]


@pytest.mark.parametrize("cls", [IMPALAConfig, APPOConfig])
def test_asynchronous_runners_go_on_while_the_learner_learns(cls: Any, tmp_path: Path) -> None:
    with config(cls, runners=2, broadcast_interval=2).build() as algo:
        before = weights(algo)
        for _ in range(10):
            result = algo.train()
        assert result["num_env_steps_sampled_lifetime"] == 10 * 64
        assert result["env_runners"]["num_episodes_lifetime"] > 5
        assert result["learners"]["default_policy"]["policy_lag"] >= 0
        assert result["fault_tolerance"] == {"num_healthy_workers": 2, "num_remote_worker_restarts": 0}
        assert not np.array_equal(before, weights(algo))
        algo.save_to_path(tmp_path)
        ours = weights(algo)
        algo.restore_from_path(tmp_path)
        assert np.array_equal(ours, weights(algo))
        assert algo.train()["num_env_steps_sampled_lifetime"] == 11 * 64
        processes = algo.env_runner_group.processes
    assert_gone(processes.values())


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_killed_learner_is_restored_and_nothing_is_lost() -> None:
    """All are made anew, take the state that the last batch left, and learn from this one again."""
    made = config(learners=2)
    expected = trained(made, 4)
    with made.build() as algo:
        algo.train()
        algo.train()
        os.kill(algo.learner_group.processes[1], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="a learner is gone"):
            algo.train()
        result = algo.train()
        assert algo.learner_group.restarts == 1
        assert result["num_env_steps_sampled_lifetime"] == 4 * 256
        processes = list(algo.learner_group.processes)
        found = weights(algo)
    assert found.shape == expected.shape
    assert_gone(processes)


@pytest.mark.parametrize("cls", [PPOConfig, IMPALAConfig])
def test_a_killed_runner_is_replaced_and_training_goes_on(cls: Any) -> None:
    told: list[Any] = []

    def mark(*, algorithm: Any, env_runner_group: Any, env_runner_indices: list[int], is_evaluation: bool) -> None:
        given = {"kwargs": {"factor": 10}, "remote_worker_ids": env_runner_indices, "local_env_runner": False}
        told.append((is_evaluation, env_runner_group.foreach_env_runner(index_times, **given)))

    with config(cls, runners=2).callbacks(on_env_runners_recreated=mark).build() as algo:
        algo.train()
        os.kill(algo.env_runner_group.processes[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match=r"runner 1 of 2 is gone.*Another one"):
            steps = until_missed(algo)
        size = steps[1] - steps[0]
        assert steps == [size * (2 + n) for n in range(len(steps))], "batches are as large as before"
        until = time.monotonic() + 300
        while algo.env_runner_group.num_healthy_env_runners < 2 and time.monotonic() < until:
            result = algo.train()
        assert result["fault_tolerance"] == {"num_healthy_workers": 2, "num_remote_worker_restarts": 1}
        algo.train()
    assert told == [(False, [10])], "once, before the next training step"


def index_times(runner: Any, factor: int) -> int:
    return int(runner.worker_index) * factor


def until_missed(algo: Algorithm) -> list[int]:
    """Train until a runner has been replaced: others that act in advance may have enough for a while."""
    steps: list[int] = []
    until = time.monotonic() + 300
    while (len(steps) < 3 or algo.env_runner_group.num_restarts == 0) and time.monotonic() < until:
        steps.append(algo.train()["num_env_steps_sampled_lifetime"])
    return steps


def faulty(how: str, folder: Path, **faults: Any) -> Any:
    context = {"how": how, "after": 70, "once": str(folder / "once")}
    made = config(runners=2).environment(Faulty, env_config=context, disable_env_checking=True)
    return made.fault_tolerance(**faults)


def test_what_an_environment_raises_is_raised_here_with_the_users_lines(tmp_path: Path) -> None:
    with faulty("raises", tmp_path).build() as algo:
        with pytest.raises(RuntimeError, match="the simulator has crashed") as caught:
            algo.train()
            algo.train()
        assert "faulty_envs.py" in str(caught.value)
        assert "break_in" in str(caught.value)


def test_it_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    with faulty("raises", tmp_path, restart_failed_sub_environments=True).build() as algo:
        with pytest.warns(RuntimeWarning, match="the simulator has crashed"):
            steps = [algo.train()["num_env_steps_sampled_lifetime"] for _ in range(3)]
        assert steps == [256, 512, 768]


def test_an_environment_that_hangs_is_given_up(tmp_path: Path) -> None:
    made = faulty("hangs", tmp_path).env_runners(sample_timeout_s=15)
    with made.build() as algo, pytest.warns(RuntimeWarning, match="has not answered for 15 seconds"):
        assert [algo.train()["num_env_steps_sampled_lifetime"] for _ in range(2)] == [256, 512]
    strict = faulty("dies", tmp_path, restart_failed_env_runners=False)
    (tmp_path / "once").unlink()
    with strict.build() as algo, pytest.raises(RuntimeError, match="is gone.*not replaced"):
        algo.train()
        algo.train()


def test_without_some_of_them_the_others_go_on_where_that_is_asked_for(tmp_path: Path) -> None:
    made = faulty("dies", tmp_path, restart_failed_env_runners=False, ignore_env_runner_failures=True)
    with made.build() as algo:
        with pytest.warns(RuntimeWarning, match="The others continue"):
            steps = [algo.train()["num_env_steps_sampled_lifetime"] for _ in range(3)]
        assert steps == [256, 512, 768]
        assert algo.env_runner_group.num_healthy_env_runners == 1
