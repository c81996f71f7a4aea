"""What a training says of its runners, learners and shards."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import polyak
from polyak.distributed import ray_workers
from polyak.distributed import traffic as counted
from polyak.distributed.traffic import Traffic
from polyak.logging.logger import KVWriter, Logger
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.distributed.test_runners import REPLAY, ROLLOUT, TURNS, carts

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_steps:UserWarning")


class Kept(KVWriter):
    """Tables in memory."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.tables.append(dict(key_values))


def logged(model: Any) -> Kept:
    """The tables of a model from now on."""
    kept = Kept()
    model.set_logger(Logger(None, [kept]))
    return kept


class Metric:
    """One of Ray's own."""

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        self.tag_keys = tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tuple(tags[key] for key in self.tag_keys)] = value

    def inc(self, value: float, tags: dict[str, str]) -> None:
        key = tuple(tags[key] for key in self.tag_keys)
        self.values[key] = self.values.get(key, 0.0) + value


def test_runners_that_come_and_go_are_seen_in_tables_and_by_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, clock, ray_metrics = FakeRay(), [0.0], dict[str, Any]()
    monkeypatch.setattr(ray_workers, "ray", lambda: fake)
    monkeypatch.setattr(counted, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(ray_workers, "_METRICS", ray_metrics)
    module = SimpleNamespace(Gauge=Metric, Counter=Metric)
    monkeypatch.setattr(ray_workers, "import_module", {"ray.util.metrics": module}.__getitem__)
    model: Any = polyak.PPO("MlpPolicy", carts, n_runners=2, **ROLLOUT)
    kept = logged(model)
    clock[0] = 2.0
    model.learn(64, log_interval=1)
    first = kept.tables[-1]
    assert (first["cluster/runners"], first["cluster/nodes"], first["cluster/runner_restarts"]) == (2, 1, 0)
    assert first["cluster/policy_lag"] == 0, "each rollout has the newest weights"
    assert first["cluster/rows_per_second"] == 32, "64 rows in 2 seconds"
    assert ray_metrics["polyak_rows_per_second"].values == {(): 32}
    fake.actors[1].die()
    with pytest.warns(RuntimeWarning, match="runner 2 of 2 is gone"):
        model.learn(64, reset_num_timesteps=False, log_interval=1)
    clock[0] = 20.0
    model.learn(64, reset_num_timesteps=False, log_interval=1)
    last = kept.tables[-1]
    assert last["cluster/runner_restarts"] == 1
    runners = json.loads(last["cluster/by_runner"])
    assert [runner["restarts"] for runner in runners] == [0, 1]
    assert all("node" in runner["node"] for runner in runners)
    assert sum(ray_metrics["polyak_rows"].values.values()) == 192, "each row once"


def test_weights_of_requests_in_advance_have_an_age() -> None:
    """Update u is made after step u: when request r of 32 steps is taken, those of request r - 2 have acted."""
    one: dict[str, Any] = {**REPLAY, "learning_starts": 0, "train_freq": 1, "gradient_steps": 1}
    model: Any = polyak.DQN("MlpPolicy", "CartPole-v1", n_runners=1, transport="local", steps_per_request=32, **one)
    model.learn(33 * 32 + 1, log_interval=None)
    flow = model.env.traffic.read()
    first, others = (0 + 32) / 2, 32 + 32 / 2
    assert flow.lag == pytest.approx((first + 32 * others) / 33, abs=1), "an update may be missing at each end"
    assert flow.rows.tolist() == [34 * 32], "what was not looked at yet does not count"


def test_weights_of_runners_that_collect_by_themselves_have_an_age() -> None:
    model: Any = polyak.IMPALA("MlpPolicy", carts, n_runners=2, transport="local", **TURNS)
    kept = logged(model)
    model.learn(400, log_interval=1)
    assert kept.tables[-1]["cluster/policy_lag"] == pytest.approx(kept.tables[-1]["train/policy_lag"], abs=1)


def test_bytes_are_those_that_travel() -> None:
    model: Any = polyak.PPO("MlpPolicy", carts, n_runners=2, transport="local", **ROLLOUT)
    model.learn(1, log_interval=None)
    flow = model.env.traffic.read()
    arrays = model.rollout_buffer.observations.nbytes + model.rollout_buffer.actions.nbytes
    assert arrays < flow.bytes < 64 * arrays


def test_rates_are_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(counted, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    traffic = Traffic(2)
    for second in range(1, 30):
        clock[0] = float(second)
        traffic.note_lag(10, second)
        flow = traffic.read()
    assert flow.seconds == counted.SPAN
    assert flow.lag == pytest.approx(sum(range(20, 30)) / 10)


def test_learners_and_shards_are_seen() -> None:
    model: Any = polyak.PPO("MlpPolicy", carts(), n_learners=2, transport="local", **ROLLOUT)
    kept = logged(model)
    model.learn(64, log_interval=1)
    last = kept.tables[-1]
    assert (last["cluster/learners"], last["cluster/learner_restarts"]) == (1, 0)
    assert 0 < last["cluster/learners_busy"] <= 100
    assert "cluster/runners" not in last
    replayed: Any = polyak.DQN("MlpPolicy", carts, n_runners=2, n_replay_shards=2, transport="local", **REPLAY)
    kept = logged(replayed)
    replayed.learn(200, log_interval=1)
    assert (kept.tables[-1]["cluster/shards"], kept.tables[-1]["cluster/shard_restarts"]) == (2, 0)
