"""Infos as columns, and back."""

from typing import Any

import numpy as np
import pytest

from polyak.envs.adapters.infos import InfoRows, as_monitored, cut_short, episode_columns


def test_statistics_become_columns_and_come_back_in_the_order_of_the_environments() -> None:
    first = {"r": 3.25, "l": 7, "t": 0.5, "level": "hills"}
    second = {"r": -1.0, "l": 2, "t": 0.75, "level": "caves"}
    infos: list[dict[str, Any]] = [{"episode": first}, {}, {"episode": second, "is_success": True}, {"is_success": 0}]
    columns = episode_columns(infos, np.array([True, False, True, True]))
    np.testing.assert_array_equal(columns["returns"], [3.25, 0.0, -1.0, 0.0])
    np.testing.assert_array_equal(columns["lengths"], [7, 0, 2, 0])
    np.testing.assert_array_equal(columns["seconds"], [0.5, 0.0, 0.75, 0.0])
    np.testing.assert_array_equal(columns["success"], [np.nan, np.nan, 1.0, 0.0])
    assert columns["monitor/level"].tolist() == ["hills", None, "caves", None]
    assert as_monitored(columns) == [first, second]


def test_success_counts_only_where_an_episode_ended() -> None:
    infos = [{"is_success": True}, {"is_success": None}, {"is_success": np.array([0.25])}]
    assert episode_columns(infos) == {}
    assert episode_columns(infos, np.zeros(3, bool)) == {}
    np.testing.assert_array_equal(episode_columns(infos, np.ones(3, bool))["success"], [1.0, np.nan, 0.25])


@pytest.mark.parametrize("other", [3, None, {"r": 1.0}, "first"])
def test_what_is_no_statistics_under_the_name_is_left_alone(other: Any) -> None:
    assert episode_columns([{"episode": other}], np.array([True])) == {}


@pytest.mark.parametrize("keyed", [False, True])
def test_infos_of_a_step_that_is_cut_short_say_so_but_where_an_episode_had_ended(keyed: bool) -> None:
    array = np.arange(4.0).reshape(2, 2)
    ended: dict[str, Any] = {"TimeLimit.truncated": False, "terminal_observation": np.zeros(2)}
    infos = cut_short([ended, {"x": 1}], np.array([True, False]), {"a": array} if keyed else array)
    assert infos[0] is ended
    assert infos[1]["TimeLimit.truncated"] is True
    assert infos[1]["x"] == 1
    final = infos[1]["terminal_observation"]
    row = final["a"] if keyed else final
    array[:] = -1  # a copy was kept
    np.testing.assert_array_equal(row, [2.0, 3.0])


def test_infos_that_are_made_on_demand_are_those_of_all_with_the_ready_ones_in_their_places() -> None:
    calls: list[int] = []

    def make() -> list[dict[str, Any]]:
        calls.append(1)
        return [{"i": i} for i in range(3)]

    infos = InfoRows(3, {1: {"episode": {"r": 2.0, "l": 5}, "is_success": True}}, make)
    columns = episode_columns(infos, np.array([False, True, False]))
    assert columns["lengths"].tolist() == [0, 5, 0]
    np.testing.assert_array_equal(columns["success"], [np.nan, 1.0, np.nan])
    assert len(infos) == 3
    assert not calls, "none of these asks for what the others say"
    assert list(infos) == infos.all() == [{"i": 0}, infos.made[1], {"i": 2}]
    assert infos[-1] == {"i": 2}
    assert infos[1] is infos.made[1]
    assert len(calls) == 1
