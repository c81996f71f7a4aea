import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs import FakeImageEnv, IdentityEnv, MaxAndSkipEnv, TimeFeatureWrapper, VecTransposeImage, make_vec_env
from polyak.envs.spaces import (
    SpaceError,
    check_for_correct_spaces,
    check_for_nested_spaces,
    check_shape_equal,
    dict_to_obs,
    get_action_dim,
    get_flattened_obs_dim,
    get_obs_shape,
    is_image_space,
    is_image_space_channels_first,
    is_vectorized_observation,
    maybe_transpose,
    obs_space_info,
)


@pytest.mark.parametrize(
    "build",
    [
        lambda: VecTransposeImage(make_vec_env("CartPole-v1")),
        lambda: VecTransposeImage.transpose_space(spaces.Box(0, 255, (3, 40, 40), np.uint8)),
        lambda: TimeFeatureWrapper(FakeImageEnv()),
        lambda: MaxAndSkipEnv(IdentityEnv(space=spaces.Dict({"a": spaces.Discrete(2)}))),
        lambda: IdentityEnv(dim=2, space=spaces.Discrete(2)),
    ],
)
def test_a_space_that_does_not_suit_raises_what_stable_baselines3_raises_too(build):
    with pytest.raises(SpaceError):
        build()
    assert issubclass(SpaceError, ValueError)
    assert issubclass(SpaceError, AssertionError)


def image_box(*shape, dtype=np.uint8, high=255):
    return spaces.Box(0, high, shape, dtype)


@pytest.mark.parametrize(
    ("space", "options", "expected"),
    [
        (image_box(64, 48, 3), {}, True),
        (image_box(3, 64, 48), {}, True),
        (image_box(64, 48, 12), {}, True),
        (image_box(64, 48, 12), {"check_channels": True}, False),
        (image_box(64, 48, 4), {"check_channels": True}, True),
        (image_box(1, 64, 48), {"check_channels": True}, True),
        (image_box(64, 48), {}, False),
        (image_box(64, 48, 3, high=254), {}, False),
        (image_box(64, 48, 3, dtype=np.float32, high=1), {}, False),
        (image_box(64, 48, 3, dtype=np.float32, high=1), {"normalized_image": True}, True),
        (spaces.Discrete(3), {}, False),
        (spaces.Dict({"a": image_box(64, 48, 3)}), {}, False),
    ],
)
def test_is_image_space(space, options, expected):
    assert is_image_space(space, **options) is expected


def test_channels_first_is_where_the_smallest_dimension_is():
    assert is_image_space_channels_first(image_box(3, 64, 48))
    assert not is_image_space_channels_first(image_box(64, 48, 3))
    with pytest.warns(UserWarning, match="middle dimension"):
        assert not is_image_space_channels_first(image_box(64, 3, 48))


def test_maybe_transpose():
    first = image_box(3, 8, 6)
    image = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    np.testing.assert_array_equal(maybe_transpose(image, first), image.transpose(2, 0, 1))
    batch = np.stack([image, image + 1])
    np.testing.assert_array_equal(maybe_transpose(batch, first), batch.transpose(0, 3, 1, 2))
    turned = maybe_transpose(image, first)
    assert maybe_transpose(turned, first) is turned
    wrong = np.zeros((5, 5, 5), np.uint8)
    assert maybe_transpose(wrong, first) is wrong
    vector = np.zeros(4)
    assert maybe_transpose(vector, spaces.Box(-1, 1, (4,))) is vector


@pytest.mark.parametrize(
    ("space", "shape", "flat"),
    [
        (spaces.Box(-1, 1, (2, 3)), (2, 3), 6),
        (spaces.Discrete(5, start=2), (1,), 5),
        (spaces.MultiDiscrete([3, 4]), (2,), 7),
        (spaces.MultiBinary(4), (4,), 4),
        (spaces.MultiBinary([2, 3]), (2, 3), 6),
        (spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)}), {"a": (2,), "b": (1,)}, 5),
    ],
)
def test_observation_sizes(space, shape, flat):
    assert get_obs_shape(space) == shape
    assert get_flattened_obs_dim(space) == flat


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 1, (2, 3)), 6),
        (spaces.Discrete(7), 1),
        (spaces.MultiDiscrete([3, 4, 5]), 3),
        (spaces.MultiBinary(4), 4),
        (
            spaces.Dict(
                a=spaces.MultiDiscrete([[3, 4]]), b=spaces.Tuple((spaces.Discrete(7), spaces.Box(-1, 1, (2, 2))))
            ),
            7,
        ),
    ],
)
def test_action_dim(space, expected):
    assert get_action_dim(space) == expected


def test_unsupported_spaces():
    with pytest.raises(NotImplementedError, match="not supported"):
        get_obs_shape(spaces.Tuple([spaces.Discrete(2)]))
    with pytest.raises(AssertionError, match=r"Multi-dimensional MultiBinary(.*) action space is not supported"):
        get_action_dim(spaces.MultiBinary([2, 3]))
    with pytest.raises(NotImplementedError, match="Text"):
        get_action_dim(spaces.Dict({"a": spaces.Text(2)}))


def test_nested_spaces_are_refused():
    check_for_nested_spaces(spaces.Dict({"a": spaces.Discrete(2)}))
    for outer in (
        spaces.Dict({"in": spaces.Dict({"a": spaces.Discrete(2)})}),
        spaces.Dict({"in": spaces.Tuple([spaces.Discrete(2)])}),
        spaces.Tuple([spaces.Tuple([spaces.Discrete(2)])]),
    ):
        with pytest.raises(NotImplementedError, match="Nested observation spaces are not supported"):
            check_for_nested_spaces(outer)


def test_check_for_correct_spaces():
    class Env:
        observation_space = spaces.Box(-1, 1, (2,))
        action_space = spaces.Discrete(2)

    check_for_correct_spaces(Env(), spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        check_for_correct_spaces(Env(), spaces.Box(-1, 1, (3,)), spaces.Discrete(2))
    with pytest.raises(ValueError, match="Action spaces do not match"):
        check_for_correct_spaces(Env(), spaces.Box(-1, 1, (2,)), spaces.Discrete(3))


def test_check_shape_equal():
    a = spaces.Dict({"x": spaces.Box(-1, 1, (2,))})
    check_shape_equal(a, spaces.Dict({"x": spaces.Box(-9, 9, (2,))}))
    with pytest.raises(AssertionError, match="shapes"):
        check_shape_equal(a, spaces.Dict({"x": spaces.Box(-1, 1, (3,))}))
    with pytest.raises(AssertionError, match="keys"):
        check_shape_equal(a, spaces.Dict({"y": spaces.Box(-1, 1, (2,))}))


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Box(-1, 1, (2, 3)), np.zeros((2, 2))),
        (spaces.Box(-1, 1, (2, 3)), np.zeros((1, 4, 2, 3))),
        (spaces.Discrete(3), np.zeros((2, 1), int)),
        (spaces.MultiDiscrete([2, 3]), np.zeros(3, int)),
        (spaces.MultiBinary(3), np.zeros((2, 2), int)),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), {"a": 0, "b": np.zeros(4, int)}),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), {"a": 0}),
        (spaces.Tuple([spaces.Discrete(2)]), (0,)),
    ],
)
def test_is_vectorized_refuses_what_is_neither(space, wrong):
    with pytest.raises(ValueError):
        is_vectorized_observation(wrong, space)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3)),
        spaces.Box(-1, 1, ()),
        spaces.Discrete(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 3]),
    ],
)
def test_is_vectorized(space):
    sample = space.sample()
    assert not is_vectorized_observation(sample, space)
    assert not is_vectorized_observation(2, spaces.Discrete(3))  # Python's own number
    assert is_vectorized_observation(np.stack([sample] * 5), space)
    both = spaces.Dict({"a": space, "b": spaces.Discrete(2)})
    assert not is_vectorized_observation(both.sample(), both)
    assert is_vectorized_observation({"a": np.stack([sample] * 5), "b": np.zeros(5, int)}, both)


def test_obs_space_info_and_back():
    keys, shapes, dtypes = obs_space_info(spaces.Box(-1, 1, (2,), np.float32))
    assert (keys, shapes, dtypes) == ([None], {None: (2,)}, {None: np.float32})
    assert dict_to_obs(spaces.Box(-1, 1, (2,)), {None: 7}) == 7

    both = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (3,), np.float64)})
    keys, shapes, dtypes = obs_space_info(both)
    assert (keys, shapes, dtypes) == (["a", "b"], {"a": (), "b": (3,)}, {"a": np.int64, "b": np.float64})
    assert dict_to_obs(both, {"a": 1, "b": 2}) == {"a": 1, "b": 2}

    pair = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (3,))])
    assert obs_space_info(pair)[1] == {0: (), 1: (3,)}
    assert dict_to_obs(pair, {0: "x", 1: "y"}) == ("x", "y")

    with pytest.raises(TypeError, match="at key 't'"):
        obs_space_info(spaces.Dict({"t": spaces.Text(3)}))
