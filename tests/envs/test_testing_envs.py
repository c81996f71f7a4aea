"""The small environments with known answers."""

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs.checker import check_env
from polyak.envs.testing import (
    BitFlippingEnv,
    FakeImageEnv,
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
    SimpleMultiObsEnv,
)

FORMS = [{}, {"discrete_obs_space": True}, {"image_obs_space": True}, {"image_obs_space": True, "channel_first": False}]


# --- bit flipping ---


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("continuous", [False, True])
def test_bit_flipping_is_a_valid_env(form, continuous, recwarn):
    check_env(BitFlippingEnv(n_bits=5, continuous=continuous, **form))
    assert not recwarn.list


@pytest.mark.parametrize("form", FORMS)
def test_bit_flipping_forms_of_a_state_round_trip(form):
    env = BitFlippingEnv(n_bits=5, **form)
    bits = [np.array([state >> place & 1 for place in range(5)]) for state in range(32)]
    states = [env.convert_if_needed(vector) for vector in bits]
    for vector, state in zip(bits, states, strict=True):
        np.testing.assert_array_equal(env.convert_to_bit_vector(state, 1), [vector])
        assert env.observation_space["observation"].contains(
            state if not isinstance(state, np.ndarray) or state.ndim > 1 else state.astype(np.int8)
        )
    np.testing.assert_array_equal(env.convert_to_bit_vector(np.stack(states), 32), np.stack(bits))


def test_bit_flipping_counts_from_the_lowest_bit_or_the_first_pixel():
    env = BitFlippingEnv(n_bits=4, discrete_obs_space=True)
    assert env.convert_if_needed(np.array([1, 0, 1, 1])) == 13
    assert env.observation_space["observation"] == gym.spaces.Discrete(16)
    image = BitFlippingEnv(n_bits=4, image_obs_space=True).convert_if_needed(np.array([1, 0, 1, 1]))
    assert (image.shape, image.dtype) == ((1, 36, 36), np.uint8)
    assert image.ravel()[:6].tolist() == [255, 0, 255, 255, 0, 0]


@pytest.mark.parametrize("form", FORMS)
def test_bit_flipping_reward_of_one_and_of_many(form):
    env = BitFlippingEnv(n_bits=3, **form)
    zero, goal = env.convert_if_needed(np.zeros(3, np.int8)), env.convert_if_needed(np.ones(3, np.int8))
    assert env.compute_reward(goal, goal, None).tolist() == [0.0]
    assert env.compute_reward(zero, goal, None).tolist() == [-1.0]
    achieved, desired = np.stack([zero, goal, zero]), np.stack([goal, goal, goal])
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, None), [-1.0, 0.0, -1.0])
    if env.discrete_obs_space:  # as a replay buffer stores them
        np.testing.assert_array_equal(env.compute_reward(achieved[:, None], desired[:, None], None), [-1.0, 0.0, -1.0])


def test_bit_flipping_solved_by_flipping_the_zeros():
    env = BitFlippingEnv(n_bits=6)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        zeros = np.flatnonzero(obs["achieved_goal"] == 0)
        for place, bit in enumerate(zeros):
            obs, reward, terminated, truncated, info = env.step(bit)
            last = place == len(zeros) - 1
            assert (reward, terminated, info["is_success"]) == (0.0 if last else -1.0, last, last)
            assert truncated == (place + 1 >= 6)
        np.testing.assert_array_equal(obs["observation"], obs["achieved_goal"])


def test_bit_flipping_continuous_flips_all_positive():
    env = BitFlippingEnv(n_bits=4, continuous=True)
    before = env.reset(seed=1)[0]["observation"]  # which a later step does not alter
    after = env.step(np.array([0.5, -0.5, 0.0, 1e-3], dtype=np.float32))[0]["observation"]
    np.testing.assert_array_equal(before != after, [True, False, False, True])


def test_bit_flipping_truncates_and_seeds():
    env = BitFlippingEnv(n_bits=4, max_steps=3)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.reset(seed=1)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    first, second = ([env.reset(seed=7)[0]["observation"].tolist()] + [
        env.reset()[0]["observation"].tolist() for _ in range(5)] for _ in range(2))  # fmt: skip
    assert first == second
    assert len({tuple(bits) for bits in first}) > 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_bits": 0}, "n_bits"),
        ({"max_steps": 0}, "max_steps"),
        ({"discrete_obs_space": True, "image_obs_space": True}, "both"),
        ({"discrete_obs_space": True, "n_bits": 63}, "n_bits"),
        ({"image_obs_space": True, "n_bits": 1297}, "n_bits"),
    ],
)
def test_bit_flipping_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        BitFlippingEnv(**kwargs)


# --- identity ---


@pytest.mark.parametrize(
    "env", [IdentityEnv(4), IdentityEnvBox(), IdentityEnvMultiDiscrete(3), IdentityEnvMultiBinary(4)], ids=str
)
def test_identity_pays_for_the_state(env):
    check_env(env, warn=False)
    state, _ = env.reset(seed=0)
    wrong = 0
    for step in range(100):
        assert np.array_equal(state, env.state)
        action = env.state if step % 2 == 0 else env.action_space.sample()
        right = bool(np.max(np.abs(np.asarray(action, float) - np.asarray(env.state, float))) <= getattr(env, "eps", 0))
        state, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated, info) == (float(right), False, step == 99, {})
        wrong += not right
    assert wrong > 0


def test_identity_spaces():
    assert IdentityEnv().action_space == gym.spaces.Discrete(1)
    assert IdentityEnv(space=gym.spaces.Discrete(5)).observation_space == gym.spaces.Discrete(5)
    with pytest.raises(ValueError, match="not both"):
        IdentityEnv(dim=2, space=gym.spaces.Discrete(2))
    with pytest.raises(ValueError, match="ep_length"):
        IdentityEnv(2, ep_length=0)


@pytest.mark.parametrize("kwargs", [{}, {"discrete": False}, {"n_channels": 3, "channel_first": True}])
def test_fake_image(kwargs):
    env = FakeImageEnv(screen_height=40, screen_width=50, **kwargs)
    check_env(env)
    first = env.reset(seed=1)[0]
    np.testing.assert_array_equal(first, env.reset(seed=1)[0])
    assert first.shape == ((3, 40, 50) if kwargs.get("channel_first") else (40, 50, 1))
    assert [env.step(env.action_space.sample())[3] for _ in range(10)] == [False] * 9 + [True]


# --- grid with two observations ---

LEFT, DOWN, RIGHT, UP = range(4)


@pytest.mark.parametrize(
    "kwargs", [{}, {"discrete_actions": False}, {"channel_last": False}, {"num_col": 5, "num_row": 3}]
)
def test_multi_obs_is_a_valid_env(kwargs):
    check_env(SimpleMultiObsEnv(**kwargs), warn=False)


@pytest.mark.parametrize(("columns", "rows"), [(4, 4), (5, 3), (3, 5), (2, 2)])
def test_multi_obs_both_ways_around_lead_to_the_end(columns, rows):
    for way in ([RIGHT] * (columns - 1) + [DOWN] * (rows - 1), [DOWN] * (rows - 1) + [RIGHT] * (columns - 1)):
        env = SimpleMultiObsEnv(num_col=columns, num_row=rows, random_start=False)
        env.reset()
        results = [env.step(move) for move in way]
        assert [reward for _, reward, *_ in results] == [-0.1] * (len(way) - 1) + [1.0]
        assert [terminated for _, _, terminated, _, _ in results] == [False] * (len(way) - 1) + [True]
        assert results[-1][4] == {"got_to_end": True}


def test_multi_obs_needs_both_observations():
    env = SimpleMultiObsEnv()
    same = lambda key, a, b: np.array_equal(env.state_mapping[a][key], env.state_mapping[b][key])  # noqa: E731
    for a in range(16):
        for b in range(16):
            assert same("vec", a, b) == (a // 4 == b // 4)
            assert same("img", a, b) == (a % 4 == b % 4)
    other = SimpleMultiObsEnv()
    assert np.array_equal(other.state_mapping[7]["img"], env.state_mapping[7]["img"])


def test_multi_obs_starts_and_truncation():
    env = SimpleMultiObsEnv()
    env.reset(seed=0)
    starts = set()
    for _ in range(200):
        env.reset()
        starts.add(env.state)
    assert starts == set(range(15))
    env.reset()
    env.state = 5
    assert [env.step(LEFT)[3] for _ in range(101)] == [False] * 100 + [True]
    env = SimpleMultiObsEnv(random_start=False, discrete_actions=False)
    env.reset()
    env.step(np.array([0.1, 0.9, 0.2, 0.3]))
    assert env.state == 4
    with pytest.raises(ValueError, match="num_col"):
        SimpleMultiObsEnv(num_col=1)


# --- forbidden choices ---

FORBIDDING = {
    "one": lambda n, **more: InvalidActionEnvDiscrete(6, n_invalid_actions=n, **more),
    "several": lambda n, **more: InvalidActionEnvMultiDiscrete([3, 2, 4], n_invalid_actions=n, **more),
    "coins": lambda n, **more: InvalidActionEnvMultiBinary(4, n_invalid_actions=n, **more),
}
MOST = {"one": 5, "several": 6, "coins": 4}


@pytest.mark.parametrize("name", FORBIDDING)
def test_so_many_choices_are_forbidden_and_never_the_right_one(name):
    for n in (0, 2, MOST[name]):
        check_env(FORBIDDING[name](n))
        env = FORBIDDING[name](n, strict=True)
        env.reset(seed=0)
        for _ in range(50):
            masks = np.array(env.action_masks())
            assert (~masks).sum() == n
            assert sorted(env.invalid_actions) == np.flatnonzero(~masks).tolist()
            assert env.step(env.state)[1] == 1.0
    with pytest.raises(
        ValueError, match=f"n_invalid_actions={MOST[name] + 1} leaves no valid action.* at most {MOST[name]} "
    ):
        FORBIDDING[name](MOST[name] + 1)


@pytest.mark.parametrize("name", FORBIDDING)
def test_a_forbidden_choice_brings_nothing_or_is_an_error(name):
    wrong = {"one": lambda s: (s + 1) % 6, "several": lambda s: (s + 1) % [3, 2, 4], "coins": lambda s: 1 - s}[name]
    lenient, strict = FORBIDDING[name](MOST[name]), FORBIDDING[name](MOST[name], strict=True)
    for env in (lenient, strict):
        env.reset(seed=0)
    assert lenient.step(wrong(lenient.state))[1] == 0.0
    with pytest.raises(ValueError, match="is forbidden"):
        strict.step(wrong(strict.state))
