"""Infos between processes: equal to what was sent, down to the types of the numbers."""

import numpy as np
import pytest

from polyak.envs.vec import info_codec
from polyak.envs.vec.info_codec import decode_step_infos, encode_step_infos

NUMBERS = {
    "flag": True,
    "lives": 3,
    "speed": -0.1,
    "numpy flag": np.bool_(False),
    "small": np.float32(0.1),
    "nan": np.float64("nan"),
    "frames": np.int32(-7),
    "long": np.int64(2**62),
    "byte": np.uint8(200),
}


def decoded(infos):
    return sorted(decode_step_infos(encode_step_infos(infos)), key=lambda entry: entry[0])


def assert_equal(first: dict, second: dict) -> None:
    assert list(first) == list(second)
    for key, value in first.items():
        assert type(second[key]) is type(value)
        np.testing.assert_array_equal(second[key], value)


def test_numbers_keep_value_and_type():
    sent = [(index, {**NUMBERS, "frames": np.int32(index)}, None) for index in range(3)]
    for (index, info, _), (place, arrived, reset_info) in zip(sent, decoded(sent), strict=True):
        assert (place, reset_info) == (index, None)
        assert_equal(info, arrived)


def test_numbers_are_not_pickled(monkeypatch):
    others = []
    monkeypatch.setattr(info_codec, "pickled", lambda content: others.extend(content[3]) or b"")
    encode_step_infos([(index, dict(NUMBERS), None) for index in range(3)])
    assert others == []


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"speed": 0.5},
        {"text": "a"},
        {**NUMBERS, "lives": 3.0},
        {**NUMBERS, "lives": 2**80},
        dict(reversed(NUMBERS.items())),
        {1: 2},
        {"array": np.arange(3)},
        {**NUMBERS, "more": {"deep": [1, None]}},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_different_arrives_too(odd, place):
    sent = [(index, odd if index == place else NUMBERS, None) for index in range(3)]
    arrived = decoded(sent)
    assert [index for index, _, _ in arrived] == [0, 1, 2]
    for (_, info, _), (_, other, _) in zip(sent, arrived, strict=True):
        assert_equal(info, other)


def test_the_end_of_an_episode():
    last = {**NUMBERS, "terminal_observation": np.arange(4.0)}
    arrived = decoded([(4, dict(NUMBERS), None), (5, last, {"seed": 3}), (6, dict(NUMBERS), {})])
    assert [reset_info for _, _, reset_info in arrived] == [None, {"seed": 3}, {}]
    assert_equal(last, arrived[1][1])
    assert_equal(NUMBERS, arrived[2][1])
