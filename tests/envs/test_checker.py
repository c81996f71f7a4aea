"""check_env: what it refuses, with which words, and what it only advises on."""

import importlib.util
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs.checker import check_env
from tests.fields.test_masks import ACTIONS, COMPOSED, Forbidding


def box(*shape, low=-1, high=1, dtype=np.float32):
    return spaces.Box(low, high, shape, dtype)


class Free(gym.Env):
    """Returns given values."""

    def __init__(self, observation_space=None, action_space=None, **returned):
        self.observation_space = box(3) if observation_space is None else observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.returned = returned

    def _obs(self):
        return self.returned["obs"] if "obs" in self.returned else self.observation_space.sample()

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.returned.get("reset", (self._obs(), {}))

    def step(self, action):
        get = self.returned.get
        five = (self._obs(), get("reward", 1.0), get("terminated", False), get("truncated", False), get("info", {}))
        return get("step", five)


def messages_of(env, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env, **kwargs)
    return [str(warning.message) for warning in caught]


def test_good_envs_pass_silently():
    assert messages_of(Free()) == []
    assert messages_of(Free(box(40, 40, 3, low=0, high=255, dtype=np.uint8))) == []
    assert messages_of(Free(box(3, 40, 40, low=0, high=255, dtype=np.uint8))) == []
    assert messages_of(Free(spaces.Discrete(3))) == []
    assert messages_of(Free(spaces.Dict(a=box(2), b=spaces.MultiBinary(4)), box(2))) == []
    assert messages_of(gym.make("CartPole-v1")) == []


def test_composed_spaces_and_those_that_start_anywhere_pass_silently():
    nested = dict_space(a=box(3), b=dict_space(c=spaces.Tuple((spaces.Discrete(2, start=5), box(1)))))
    actions = dict_space(a=box(2), b=spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2))))
    assert messages_of(Free(nested, actions)) == []
    assert messages_of(Free(spaces.Tuple((box(3), dict_space(a=box(1)))))) == []
    assert messages_of(Free(spaces.Discrete(3, start=-1), spaces.MultiDiscrete([3], start=[1]))) == []
    assert messages_of(Free(spaces.MultiDiscrete([[3, 3]], start=[[1, 2]]), spaces.MultiDiscrete([[3, 2]]))) == []


def test_under_the_peers_name_it_warns_of_what_the_peer_lacks():
    from polyak.compat.sb3_face.functions import check_env as peers

    nested, actions = dict_space(b=dict_space(c=box(1))), spaces.Tuple((spaces.Discrete(2, start=1),))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peers(Free(nested, actions))
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3
    assert all("not supported by Stable-Baselines3" in message for message in said)


@pytest.mark.parametrize("says", ["method", "info", "observation"])
@pytest.mark.parametrize("name", [*ACTIONS, *COMPOSED])
def test_only_what_an_environment_allows_is_tried(name, says):
    assert all(message.startswith("The action space") for message in messages_of(forbidding(name, says)))


def test_a_mask_that_forbids_everything_is_refused():
    env = forbidding("discrete", "method")
    env.action_masks = lambda: np.zeros(5, bool)
    with pytest.raises(AssertionError, match="forbids every choice"):
        check_env(env)


def forbidding(name, says):
    return Forbidding((ACTIONS | COMPOSED)[name], says, length=3)


def dict_space(**parts):
    return spaces.Dict(parts)


zeros = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: object(), "env must be a gymnasium.Env, got object"),
        (lambda: type("NoSpace", (gym.Env,), {})(), "has no observation_space"),
        (lambda: type("NoAction", (gym.Env,), {"observation_space": box(1)})(), "has no action_space"),
        (lambda: Free(3), "observation_space must be one of gymnasium.spaces.*got int"),
        (lambda: Free(obs=np.zeros((2, 3), np.float32)), r"Expected: \(3,\), actual shape: \(2, 3\)"),
        (
            lambda: Free(obs=np.zeros(3)),
            r"Expected: float32, actual dtype: float64. Return obs.astype\(np.float32\), or .* dtype=np.float64",
        ),
        (
            lambda: Free(obs=np.array([0, 5, 0], np.float32)),
            r"out of bounds at 1 invalid indices:\s+Expected: -1.0 <= obs\[1\] <= 1.0, actual value: 5.0",
        ),
        (lambda: Free(box(2, 2, 2), obs=np.full((2, 2, 2), 3, np.float32)), r"8 invalid indices:[\s\S]*obs\[0,0,0\]"),
        (lambda: Free(box(50), obs=np.full(50, 3, np.float32)), r"and 30 more"),
        (lambda: Free(obs=[0.0, 0.0, 0.0]), r"must be a numpy array, got list. Return np.array\(obs, np.float32"),
        (lambda: Free(obs=np.array([0, np.nan, 0], np.float32)), r"obs\[1\] is nan"),
        (lambda: Free(spaces.Discrete(3), obs=5), r"does not fit Discrete\(3\), got 5"),
        (lambda: Free(spaces.Discrete(3), obs=1.0), "must be an int, got float"),
        (lambda: Free(reset=zeros), r"`reset\(\)` must give a pair \(obs, info\), got ndarray"),
        (lambda: Free(reset=(zeros, 3)), r"`reset\(\)` must give info as a dict, got 3"),
        (lambda: Free(step=(zeros, 1.0, False, {})), "must return a tuple of 5.*got a tuple of 4"),
        (lambda: Free(terminated=0), "must give terminated as a bool, got int"),
        (lambda: Free(truncated=np.bool_(False)), r"must give truncated as a bool.*Use bool\(truncated\)"),
        (lambda: Free(reward=np.float32(1)), "must give the reward as a float, got float32"),
        (lambda: Free(reward=np.array([1.0])), "the reward as a float, got ndarray"),
        (lambda: Free(reward=None), "the reward as a float, got NoneType"),
        (lambda: Free(info=3), r"`step\(\)` must give info as a dict, got 3"),
        (lambda: Free(action_space=box(2, low=-np.inf, high=np.inf)), "is unbounded: give it finite low and high"),
        (
            lambda: Free(dict_space(obs=box(3)), obs={"obs": np.zeros((2, 3), np.float32)}),
            r"Error while checking key=obs.*Expected: \(3,\), actual shape: \(2, 3\)",
        ),
        (lambda: Free(dict_space(a=box(3), b=box(1)), obs={"a": zeros}), r"\['a'\] != \['a', 'b'\]"),
        (lambda: Free(dict_space(a=box(3)), obs={"a": zeros, "c": 1}), r"\['a', 'c'\] != \['a'\]"),
        (lambda: Free(dict_space(a=box(3)), obs=zeros), "must be a dict, .*got ndarray"),
        (
            lambda: Free(dict_space(a=dict_space(b=box(3))), obs={"a": {"b": np.zeros(2, np.float32)}}),
            r"checking key=a/b.*actual shape: \(2,\)",
        ),
        (
            lambda: Free(dict_space(a=dict_space(b=box(3))), obs={"a": zeros}),
            "at key 'a' must be a dict, .*got ndarray",
        ),
        (lambda: Free(spaces.Tuple((box(3),)), obs=(zeros, zeros)), "must be a tuple of 1, .*got a tuple of 2"),
        (lambda: Free(spaces.Dict({"a": dict_space(b=box(3)), "a/b": box(1)})), "the same name 'a/b'"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_refused(env, message):
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check_env(env())


@pytest.mark.parametrize("method", ["reset", "step"])
def test_wrong_observation_names_the_method(method):
    env = Free(obs=np.zeros(4, np.float32))
    if method == "step":
        env.returned["reset"] = (zeros, {})
    with pytest.raises(AssertionError, match=rf"observation of `{method}\(\)` does not fit"):
        check_env(env)


def test_reset_without_seed_is_a_type_error():
    class Old(Free):
        def reset(self):
            return self._obs(), {}

    with pytest.raises(TypeError, match="no argument `seed`"):
        check_env(Old())


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Free(spaces.Sequence(box(3))), "Sequence observation space is not supported. Pad it"),
        (Free(dict_space(a=spaces.Sequence(box(3)))), r"Sequence observation space is not supported \(key 'a'\)"),
        (
            Free(dict_space(a=spaces.Tuple((box(3), spaces.Text(3))))),
            r"Text observation space is not supported \(key 'a/1'\)",
        ),
        (Free(spaces.Graph(box(3), box(2))), "Graph observation space is not supported"),
        (Free(spaces.OneOf((box(3), box(2)))), "OneOf observation space is not supported"),
        (
            Free(action_space=spaces.Dict(a=spaces.Graph(box(3), box(2)))),
            r"Graph action space is not supported \(key 'a'",
        ),
        (Free(action_space=spaces.Dict(a=box(3, high=2))), r"action space of a is Box.*actions in \[-1, 1\]\."),
        (Free(action_space=spaces.OneOf((box(3), box(2)))), "OneOf action space is not supported"),
        (Free(box(40, 40)), r"shape \(40, 40\) of the observation is that of neither"),
        (Free(box(84, 84, 3, low=0, high=1)), "dtype float32 instead of uint8"),
        (Free(box(40, 40, 3, low=0, high=100, dtype=np.uint8)), "bounds are not 0 and 255"),
        (Free(box(20, 20, 3, low=0, high=255, dtype=np.uint8)), r"image of \(20, 20\) pixels.*at least 36x36"),
        (Free(box(3, 20, 40, low=0, high=255, dtype=np.uint8)), r"image of \(20, 40\) pixels.*at least 36x36"),
        (Free(action_space=box(2, low=0)), r"actions in \[-1, 1\]"),
        (Free(action_space=box(2, low=-2, high=2)), r"actions in \[-1, 1\]"),
        (Free(action_space=box(2, dtype=np.float64)), "dtype float64: use np.float32"),
    ],
)
def test_advice(env, message):
    with pytest.warns(UserWarning, match=f"(?s){message}"):
        check_env(env)
    assert messages_of(env, warn=False) == []


def test_nan_and_inf_are_found_once():
    infinite = box(3, low=-np.inf, high=np.inf)
    assert messages_of(Free(infinite, obs=np.array([0, 0, np.inf], np.float32))) == [
        "found inf in observations: observation[2] returned by the environment at reset."
    ]
    (message,) = messages_of(Free(reward=float("nan"), action_space=spaces.Discrete(1)))
    assert message == "found nan in rewards: reward returned by the environment after action 0."


class Goals(Free):
    def __init__(self, compute, space=None):
        parts = {name: box(2) for name in ("observation", "achieved_goal", "desired_goal")}
        super().__init__(spaces.Dict(parts) if space is None else space)
        self.compute_reward = compute


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Goals(lambda a, d, i: np.ones(len(a))), None),
        (Goals(lambda a, d, i: 1.0), r"must be vectorized.*shape \(2,\), got float"),
        (Goals(lambda a, d, i: np.ones(1)), r"must be vectorized.*got shape \(1,\)"),
        (Goals(lambda a, d, i: -np.ones(len(a))), r"must give the reward of `step\(\)`, 1.0, got -1.0"),
        (Goals(lambda a, d, i: 1.0, dict_space(achieved_goal=box(2))), r"got the keys \['achieved_goal'\]"),
        (Goals(lambda a, d, i: 1.0, box(3)), r"need the keys .*got the keys \[\]"),
    ],
)
def test_goal_envs(env, message):
    if message is None:
        check_env(env)
    else:
        with pytest.raises(AssertionError, match=f"(?s){message}"):
            check_env(env)


class Drawn(Free):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, mode, frame=None):
        super().__init__()
        self.render_mode, self.frame = mode, frame

    def render(self):
        return self.frame


def test_render_check():
    image = np.zeros((4, 4, 3), np.uint8)
    check_env(Drawn("rgb_array", image), skip_render_check=False)
    check_env(Drawn("wrong", image))
    check_env(Drawn(None), skip_render_check=False)
    with pytest.raises(AssertionError, match="not one of"):
        check_env(Drawn("wrong", image), skip_render_check=False)
    with pytest.raises(AssertionError, match="got NoneType"):
        check_env(Drawn("rgb_array"), skip_render_check=False)


def test_episode_of_one_step_is_reset_before_the_next():
    class OneStep(Free):
        ended = True

        def reset(self, seed=None, options=None):
            self.ended = False
            return super().reset(seed, options)

        def step(self, action):
            assert not self.ended
            self.ended = True
            return self._obs(), 1.0, True, False, {}

    check_env(OneStep())


def test_checks_are_made_under_python_O():
    spec = importlib.util.find_spec("polyak.envs.checker")
    module = importlib.util.module_from_spec(spec)
    exec(compile(Path(spec.origin).read_text(), spec.origin, "exec", optimize=1), vars(module))
    with pytest.raises(AssertionError, match="obs"):
        module.check_env(Free(obs=np.zeros(4)))
