import json
import pickle

import numpy as np
import pytest

from polyak.schedules import (
    ConstantSchedule,
    FloatSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    parse_schedule,
    schedule_from_json,
    schedule_to_json,
)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_linear_schedule_refuses_a_fraction_outside_0_1(fraction):
    with pytest.raises(ValueError, match="end_fraction must lie in"):
        LinearSchedule(1, 0, fraction)


@pytest.mark.parametrize("bad", ["lin_1", None, True, [1.0], float("nan")])
def test_what_is_not_a_schedule_is_refused(bad):
    with pytest.raises(TypeError, match="a schedule must be a number or a function"):
        FloatSchedule(bad)


def test_parse_schedule():
    assert parse_schedule("lin_3e-4") == LinearSchedule(3e-4, 0.0, 1.0)
    assert parse_schedule("lin_3e-4")(0.5) == pytest.approx(1.5e-4)
    assert parse_schedule("3e-4") == 3e-4
    assert parse_schedule(-1) == -1.0
    assert type(parse_schedule(1)) is float

    def own(progress):
        return progress

    assert parse_schedule(own) is own
    for bad in ("cosine", "lin_", "lin_x"):
        with pytest.raises(ValueError, match=f"cannot read '{bad}'"):
            parse_schedule(bad)
    with pytest.raises(TypeError):
        parse_schedule(None)


@pytest.mark.parametrize(
    "schedule", [0.5, ConstantSchedule(1.0), LinearSchedule(1.0, 0.1, 0.5), FloatSchedule(LinearSchedule(1.0, 0, 1))]
)
def test_json_and_pickle_round_trip(schedule):
    data = json.loads(json.dumps(schedule_to_json(schedule)))
    assert schedule_from_json(data) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@pytest.mark.parametrize("value", [lambda p: p, FloatSchedule(lambda p: p), "text", None, True, [1], np.ones(1)])
def test_what_is_not_ours_has_no_json(value):
    assert schedule_to_json(value) is None


@pytest.mark.parametrize("data", [{"kind": "cosine"}, {"kind": "linear", "start": 1}, {"kind": "float"}, "x", None])
def test_damaged_json_is_refused(data):
    with pytest.raises(ValueError, match="schedule"):
        schedule_from_json(data)


def test_straight_lines_between_points() -> None:
    schedule = PiecewiseSchedule(((0.0, 1.0), (0.5, 0.2), (2.0, 0.0)))
    expected = {0.0: 1.0, 0.25: 0.6, 0.5: 0.2, 1.25: 0.1, 2.0: 0.0, 3.0: 0.0}
    for done, value in expected.items():
        assert schedule(1 - done) == pytest.approx(value, abs=1e-12)
    assert PiecewiseSchedule(((0.5, 0.2),))(1.0) == 0.2
    assert schedule_from_json(json.loads(json.dumps(schedule_to_json(schedule)))) == schedule
    for wrong in ((), ((0.0, 1.0), (0.0, 0.5))):
        with pytest.raises(ValueError, match="points"):
            PiecewiseSchedule(wrong)
