"""Runners that collect each by itself: IMPALA and APPO on the plain face, with ``n_runners``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyak
from polyak.collecting.rollout import RolloutWriter
from polyak.distributed.separate_runners import SeparateRunners
from polyak.experience import RolloutBuffer
from tests.distributed.test_runners import REMEMBERS, SMALL, TURNS, Kept, carts, weights
from tests.distributed.test_shards import poles


class OwnBuffer(RolloutBuffer):
    """Stores what everyone stores, one step at a time."""

    def add(self, *args: Any, **kwargs: Any) -> None:
        super().add(*args, **kwargs)

    values_may_follow = True


def impala(**options: Any) -> Any:
    return polyak.IMPALA("MlpPolicy", carts, transport="local", **{**TURNS, **options})


def test_one_runner_in_turn_learns_what_was_learned_from_its_steps_one_by_one() -> None:
    """A chunk that becomes the rollout as it is, and one that is written row by row."""
    one = impala(n_runners=1).learn(400)
    other = impala(n_runners=1, rollout_buffer_class=OwnBuffer).learn(400)
    np.testing.assert_array_equal(weights(one), weights(other))
    assert one.collector.lags == [0]
    assert any(info["l"] > 0 for info in one.ep_info_buffer)


def test_runners_take_turns_and_each_gets_the_newest_weights() -> None:
    taken, lags = [], []

    def look(names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if model.runner.row == 0:
            taken.append(model.runner.in_hand.worker)
            lags.append(model.learner.steps - model.runner.in_hand.version)
        return True

    impala(n_runners=3).learn(16 * 2 * 7, look)
    assert taken == [0, 1, 2, 0, 1, 2, 0]
    assert lags == [0, 1, 2, 2, 2, 2, 2], "while one is learned from, the others' are waiting"


@pytest.mark.parametrize("algorithm", ["IMPALA", "APPO"])
def test_runners_here_give_equal_numbers_without_turns_too(algorithm: str) -> None:
    options: Any = {**SMALL, "n_steps": 16, "n_runners": 2, "transport": "local", "queue_size": 1}
    one, other = (getattr(polyak, algorithm)("MlpPolicy", carts, **options).learn(300) for _ in range(2))
    np.testing.assert_array_equal(weights(one), weights(other))
    assert one._n_updates > 0
    assert not one.runner.is_ahead


def test_training_resumes_in_the_middle_of_what_was_taken_at_once(tmp_path: Path) -> None:
    whole = impala(n_runners=2, asynchronous=True, broadcast_interval=2)

    def save(names: dict[str, Any], _: Any) -> bool:
        if names["self"].num_timesteps == 150:
            names["self"].save(tmp_path / "half.zip")
        return True

    kept = Kept()
    whole.learn(400, [save, kept])
    half = polyak.IMPALA.load(tmp_path / "half.zip", env=carts, resume=True, device="cpu")
    after = Kept()
    half.learn(250, after, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))
    np.testing.assert_array_equal(kept.rewards[-len(after.rewards) :], after.rewards)


def test_a_stop_in_the_middle_loses_nothing() -> None:
    whole = impala(n_runners=2).learn(400)
    parts = impala(n_runners=2)
    parts.learn(400, lambda names, _: names["self"].num_timesteps < 150)
    assert parts.num_timesteps == 150
    parts.learn(250, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(parts))


def test_steps_are_not_made_one_by_one() -> None:
    model = impala(n_runners=2).learn(64)
    assert isinstance(model.runner, SeparateRunners)
    with pytest.raises(RuntimeError, match="whole rollouts"):
        model.runner.step()


def test_what_a_runner_has_written_is_what_the_learner_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column of observations, actions, rewards or of the recurrent state is copied on its way."""

    def no_rows(*_: Any) -> None:
        raise AssertionError("a row was copied")

    monkeypatch.setattr(RolloutWriter, "record", no_rows)
    model: Any = polyak.IMPALA("MlpPolicy", poles, n_runners=2, transport="local", **REMEMBERS)
    read, written = [], []
    update = model.learner.update

    def looked(unroll: Any) -> Any:
        trajectory = unroll.trajectory
        columns = [trajectory.observations, trajectory.actions, trajectory.rewards, *trajectory.extras.values()]
        read.append([column.data_ptr() for column in columns])
        return update(unroll)

    def look(names: dict[str, Any], _: Any) -> bool:
        if model.runner.row == 0:
            chunk = model.runner.in_hand.chunk
            extras = [chunk.columns[f"extras/{name}"] for name in model.rollout_buffer.extras]
            columns = [chunk.seen, chunk.columns["actions"], chunk.columns["rewards"], *extras]
            written.append([column.ctypes.data for column in columns])
        return True

    model.learner.update = looked
    model.learn(200, look)
    assert len(read) > 4
    assert read == written
    assert len(read[0]) == 7, "observations, actions, rewards, and what two LSTMs keep"
