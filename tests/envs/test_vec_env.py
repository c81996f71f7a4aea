import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.masks import find_masks
from polyak.envs.vec.seeds import seeds_of
from polyak.envs.vec.vec_env import (
    CloudpickleWrapper,
    VecEnv,
    VecEnvWrapper,
    is_vecenv_wrapped,
    tile_images,
    unwrap_vec_wrapper,
)


class Counter(gym.Env):
    """Observation = [episode, step, action]; ends after ``length`` steps, truncated if ``truncates``."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length=3, truncates=False, render_mode=None):
        self.observation_space = spaces.Box(-100, 100, (3,), np.float32)
        self.length, self.truncates, self.render_mode = length, truncates, render_mode
        self.episode = -1
        self.obs = np.zeros(3)
        self.info = {"array": np.zeros(1), "nested": {"list": [0]}}
        self.reset_calls = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.reset_calls.append((seed, options))
        self.episode += 1
        self.obs[:] = self.episode, 0, 0
        return self.obs, {"seed": seed, "options": options}

    def step(self, action):
        # The same array and dict every time: a VecEnv must not let later steps alter earlier results.
        self.obs[1] += 1
        self.obs[2] = action[0]
        self.info["array"][0] = self.obs[1]
        self.info["nested"]["list"][0] = int(self.obs[1])
        over = self.obs[1] >= self.length
        return self.obs, self.obs[1] * 10, over and not self.truncates, over and self.truncates, self.info

    def render(self):
        return np.full((2, 2, 3), self.episode + 1, np.uint8) if self.render_mode else None

    def add(self, a, b=0):
        return self.length + a + b


class PassOn(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


def counters(*lengths, **kwargs):
    return DummyVecEnv([lambda length=length: Counter(length, **kwargs) for length in lengths])


def actions(*values):
    return np.array(values, np.float32)[:, None]


# --- stepping -------------------------------------------------------------------------------------------------------


def test_later_steps_do_not_alter_earlier_results():
    venv = counters(2)
    first = venv.reset()
    one = venv.step(actions(0.5))
    two = venv.step(actions(1))
    venv.step(actions(0))
    np.testing.assert_array_equal(first, [[0, 0, 0]])
    np.testing.assert_array_equal(one[0], [[0, 1, 0.5]])
    assert one[1].tolist() == [10]
    assert two[2].tolist() == [True]
    np.testing.assert_array_equal(two[3][0]["terminal_observation"], [0, 2, 1])
    assert one[3][0]["array"].tolist() == [1]
    assert one[3][0]["nested"] == {"list": [1]}
    assert two[3][0]["nested"] == {"list": [2]}


def test_seed_and_options_are_used_once_at_the_next_reset():
    venv = counters(2, 2, 2)
    seeds = seeds_of(7, 3)
    assert list(venv.seed(7)) == seeds
    venv.set_options({"level": 1})
    venv.reset()
    assert [info["seed"] for info in venv.reset_infos] == seeds
    assert [info["options"] for info in venv.reset_infos] == [{"level": 1}] * 3
    venv.step(actions(0, 0, 0))
    venv.step(actions(0, 0, 0))
    assert [info["seed"] for info in venv.reset_infos] == [None] * 3
    venv.set_options([{"a": i} for i in range(3)])
    venv.reset()
    assert [env.reset_calls[-1] for env in venv.envs] == [(None, {"a": 0}), (None, {"a": 1}), (None, {"a": 2})]
    venv.reset()
    assert venv.envs[0].reset_calls[-1] == (None, None)
    with pytest.raises(ValueError, match="options must be one dict or 3 dicts"):
        venv.set_options([{}])


def test_random_base_seed_is_drawn_from_numpy():
    venv = counters(1, 1)
    np.random.seed(3)
    first = list(venv.seed())
    np.random.seed(3)
    assert list(venv.seed(None)) == first
    assert first == seeds_of(first[0], 2)
    assert list(venv.seed()) != first


def test_an_environment_may_be_replaced_by_a_wrapped_one():
    venv = counters(3)
    venv.envs[0] = gym.wrappers.TransformReward(venv.envs[0], lambda reward: -reward)
    venv.reset()
    assert venv.step(actions(0))[1].tolist() == [-10]


def test_matches_the_environments_stepped_alone():
    venv = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 3)
    alone = [gym.make("CartPole-v1") for _ in range(3)]
    venv.seed(5)
    obs = venv.reset()
    expected = np.stack([env.reset(seed=seed)[0] for env, seed in zip(alone, seeds_of(5, 3), strict=True)])
    np.testing.assert_array_equal(obs, expected)
    rng = np.random.default_rng(0)
    for _ in range(200):
        action = rng.integers(0, 2, 3)
        obs, rewards, dones, infos = venv.step(action)
        for i, env in enumerate(alone):
            row, reward, terminated, truncated, _ = env.step(action[i])
            assert (rewards[i], dones[i]) == (reward, terminated or truncated)
            if dones[i]:
                np.testing.assert_array_equal(infos[i]["terminal_observation"], row)
                row, _ = env.reset()
            np.testing.assert_array_equal(obs[i], row)


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_same_instance_twice():
    env = Counter()
    with pytest.raises(ValueError, match="returned the same instance for environments 0 and 1"):
        DummyVecEnv([lambda: env, lambda: env])
    with pytest.raises(ValueError, match="same instance"):
        DummyVecEnv([lambda: env, lambda: gym.wrappers.TimeLimit(env, 5)])


def test_bad_factories():
    with pytest.raises(TypeError, match=r"env_fns\[0\] must be a function.*Pass \[lambda: env\]"):
        DummyVecEnv([Counter()])
    with pytest.raises(ValueError, match="at least one"):
        DummyVecEnv([])
    with pytest.raises(ValueError, match=r"env_fns\[1\] returned .*not a Gymnasium environment"):
        DummyVecEnv([Counter, object])
    with pytest.raises(ValueError, match="GymVectorEnv"):
        DummyVecEnv([lambda: gym.make_vec("CartPole-v1", num_envs=1, vectorization_mode="sync")])


def test_wrong_number_of_actions():
    venv = counters(3, 3)
    venv.reset()
    with pytest.raises(ValueError, match=r"one action per environment \(2\), got 1"):
        venv.step(actions(0))
    with pytest.warns(UserWarning, match="3 actions for 2 environments"):
        assert len(venv.step(actions(0, 1, 0))[0]) == 2
    single = counters(3)
    single.reset()
    assert single.step(actions(1)[0])[2].shape == (1,), "a single environment's own action"


def test_old_gym_four_tuple():
    class Old(Counter):
        def step(self, action):
            return self.obs, 0.0, False, {}

    venv = DummyVecEnv([Counter, Old])
    venv.reset()
    with pytest.raises(ValueError, match=r"step\(\) of environment 1 .*got a tuple of 4 .*old gym API"):
        venv.step(actions(0, 0))


@pytest.mark.parametrize("result", [np.zeros(3), np.zeros(2), (np.zeros(3), 1)])
def test_old_gym_reset(result):
    class Old(Counter):
        def reset(self, *, seed=None, options=None):
            return result

    with pytest.raises(ValueError, match=r"reset\(\) of environment 1 .*must return \(observation, info dict\)"):
        DummyVecEnv([Counter, Old]).reset()


def test_wrong_shape_names_environment_key_and_shapes():
    class Wrong(Counter):
        def step(self, action):
            _, *rest = super().step(action)
            return np.zeros(1), *rest  # numpy would broadcast it silently

    venv = DummyVecEnv([Counter, Wrong])
    venv.reset()
    with pytest.raises(ValueError, match=r"environment 1 has shape \(1,\), expected \(3,\)"):
        venv.step(actions(0, 0))

    class WrongKey(Counter):
        def __init__(self, obs):
            super().__init__()
            self.observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))})
            self.wrong = obs

        def reset(self, **kwargs):
            return self.wrong, {}

    with pytest.raises(ValueError, match=r"environment 0 at key 'b' has shape \(3,\), expected \(2,\)"):
        DummyVecEnv([lambda: WrongKey({"a": 1, "b": np.zeros(3)})]).reset()
    with pytest.raises(ValueError, match="environment 0 has no entry 'b'"):
        DummyVecEnv([lambda: WrongKey({"a": 1})]).reset()


def test_exception_carries_environment_seed_and_action():
    class Fails(Counter):
        def step(self, action):
            if self.obs[1] == 1:
                raise ZeroDivisionError("in user code")
            return super().step(action)

    venv = DummyVecEnv([Counter, Fails])
    venv.seed(40)
    venv.reset()
    venv.step(actions(0, 0))
    with pytest.raises(ZeroDivisionError, match="in user code") as caught:
        venv.step(actions(0.5, 0.75))
    text = "".join(getattr(caught.value, "__notes__", [])) + str(caught.value)
    assert "step() of environment 1" in text
    assert f"seeded with {seeds_of(40, 2)[1]}" in text
    assert "0.75" in text


def test_exceptions_elsewhere_carry_the_environment():
    def raises(*_):
        raise ZeroDivisionError("in user code")

    with pytest.raises(ZeroDivisionError) as caught:
        DummyVecEnv([Counter, raises])
    assert "env_fns[1]()" in "".join(getattr(caught.value, "__notes__", caught.value.args))
    venv = DummyVecEnv([Counter, Counter])
    venv.envs[1].unwrapped.work = raises
    venv.envs[0].unwrapped.work = lambda: None
    with pytest.raises(ZeroDivisionError) as caught:
        venv.env_method("work")
    assert "work() of environment 1" in "".join(getattr(caught.value, "__notes__", caught.value.args))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_reset_that_takes_no_seed_is_named(wrapped):
    class Unseeded(Counter):
        def reset(self):
            return super().reset()

    venv = DummyVecEnv([lambda: gym.wrappers.TimeLimit(Unseeded(), 5) if wrapped else Unseeded()])
    with pytest.raises(TypeError, match=r"reset\(\) of environment 0 .*Unseeded.* does not take seed, which"):
        venv.reset()


# --- reaching in ----------------------------------------------------------------------------------------------------


def test_set_attr_reaches_the_owner():
    venv = DummyVecEnv([lambda n=n: gym.wrappers.TimeLimit(Counter(n), 10 + n) for n in (3, 4)])
    venv.set_attr("length", 1, indices=1)
    assert [env.unwrapped.length for env in venv.envs] == [3, 1]
    assert "length" not in vars(venv.envs[1])
    venv.set_attr("_max_episode_steps", 77)
    assert [vars(env)["_max_episode_steps"] for env in venv.envs] == [77, 77]
    assert venv.get_attr("_max_episode_steps") == [77, 77]
    venv.reset()
    assert venv.step(actions(0, 0))[2].tolist() == [False, True]


def test_set_attr_of_a_class_attribute_and_of_a_property():
    class Shaped(Counter):
        scale = 1.0

        @property
        def double(self):
            return 2 * self.length

        @double.setter
        def double(self, value):
            self.length = value // 2

    venv = DummyVecEnv([lambda: gym.wrappers.TimeLimit(Shaped(), 10)])
    venv.set_attr("scale", 3.0)
    venv.set_attr("double", 8)
    assert (venv.envs[0].unwrapped.scale, venv.envs[0].unwrapped.length) == (3.0, 4)
    venv.set_attr("render_mode", "rgb_array")
    assert venv.envs[0].unwrapped.render_mode == "rgb_array"


def test_set_attr_of_something_new_warns_once():
    venv = DummyVecEnv([lambda: gym.wrappers.TimeLimit(Counter(), 10)] * 2)
    with pytest.warns(UserWarning, match=r"set_attr\('lenght'\).*TimeLimit") as caught:
        venv.set_attr("lenght", 1)
    assert len(caught) == 1
    assert venv.envs[1].lenght == 1
    assert venv.get_attr("lenght") == [1, 1]


# --- images -------------------------------------------------------------------------------------------------------


def test_tile_images():
    images = [np.full((2, 3, 1), i + 1, np.uint8) for i in range(5)]
    grid = tile_images(images)
    # five images: three rows of two
    assert grid.shape == (6, 6, 1)
    assert grid.dtype == np.uint8
    assert [[grid[r, c, 0] for c in (0, 3)] for r in (0, 2, 4)] == [[1, 2], [3, 4], [5, 0]]
    np.testing.assert_array_equal(tile_images(images[:1]), images[0])
    rows = np.arange(4, dtype=np.uint8).reshape(2, 2, 1)
    np.testing.assert_array_equal(tile_images([rows, rows + 4])[:, :, 0], [[0, 1], [2, 3], [4, 5], [6, 7]])


def test_render_modes():
    venv = counters(3, 3, render_mode="rgb_array")
    assert venv.render_mode == "rgb_array"
    assert venv.metadata["render_fps"] == 20
    venv.reset()
    assert venv.render().shape == (4, 2, 3)
    assert len(venv.get_images()) == 2
    assert venv.render("rgb_array")[0, 0, 0] == 1
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert venv.render("ansi") is None
    silent = counters(3)
    silent.reset()
    with pytest.warns(UserWarning, match="no render_mode"):
        assert silent.render() is None
    with pytest.raises(ValueError, match="render_mode must be the same"):
        DummyVecEnv([Counter, lambda: Counter(render_mode="rgb_array")])


# --- wrappers -------------------------------------------------------------------------------------------------------


class Inner(PassOn):
    def __init__(self, venv):
        super().__init__(venv)
        self.only_inner = 1
        self.both = "inner"

    def hello(self):
        return "inner hello"


class Outer(PassOn):
    def __init__(self, venv):
        super().__init__(venv)
        self.both = "outer"


def test_wrapper_forwards_attributes_and_methods():
    base = counters(3)
    env = PassOn(Inner(base))
    assert env.only_inner == 1
    assert env.hello() == "inner hello"
    assert env.envs is base.envs
    assert env.unwrapped is base
    assert env.num_envs == 1
    assert env.get_attr("length") == [3]
    assert env.metadata is base.metadata
    with pytest.raises(AttributeError, match="no_such_name"):
        env.no_such_name  # noqa: B018
    assert not hasattr(env, "no_such_name")


def test_a_property_that_finds_nothing_says_so():
    class Broken(PassOn):
        @property
        def broken(self):
            return self.venv.no_such_name

    with pytest.raises(AttributeError, match="broken"):
        Broken(Inner(counters(3))).broken  # noqa: B018


def test_a_vec_env_without_our_constructor_has_no_infos_of_a_reset():
    base = counters(3)
    del base.reset_infos
    assert PassOn(base).reset_infos == []
    assert find_masks(PassOn(base)) is None


def test_ambiguous_attribute():
    env = PassOn(Outer(Inner(counters(3))))
    assert env.venv.both == "outer"
    with pytest.raises(AttributeError, match=r"'both' of .*PassOn is ambiguous.* hides that of .*Inner"):
        env.both  # noqa: B018
    assert env.getattr_depth_check("both", already_found=False).endswith("Inner")
    assert env.getattr_depth_check("only_inner", already_found=False) is None
    assert env.getattr_depth_check("only_inner", already_found=True).endswith("Inner")
    assert env.getattr_recursive("both") == "outer"


def test_wrapping_keeps_reset_infos_seeds_and_options():
    base = counters(3)
    base.seed(3)
    base.reset()
    base.seed(9)
    env = Outer(base)
    assert env.reset_infos[0]["seed"] == 3
    env.set_options({"a": 1})
    env.reset()
    assert env.reset_infos == base.reset_infos == [{"seed": 9, "options": {"a": 1}}]


def test_finding_wrappers():
    inner = Inner(counters(3))
    env = Outer(inner)
    assert unwrap_vec_wrapper(env, Inner) is inner
    assert unwrap_vec_wrapper(env, Outer) is env
    assert unwrap_vec_wrapper(inner, Outer) is None
    assert is_vecenv_wrapped(env, Inner)
    assert not is_vecenv_wrapped(inner, Outer)
    assert not is_vecenv_wrapped(Counter(), Outer)
    with pytest.raises(TypeError, match="Outer wraps a VecEnv, got Counter"):
        Outer(Counter())


def test_context_manager_closes():
    class Closes(Counter):
        closed = 0

        def close(self):
            Closes.closed += 1

    with Outer(DummyVecEnv([Closes, Closes])):
        pass
    assert Closes.closed == 2


def test_a_vecenv_of_ones_own():
    class Minimal(VecEnv):
        def reset(self):
            return np.zeros((2, 1))

        def step_async(self, actions):
            self.actions = actions

        def step_wait(self):
            return self.actions, np.zeros(2), np.zeros(2, bool), [{}, {}]

        def close(self): ...

        def get_attr(self, attr_name, indices=None):
            raise AttributeError(attr_name)

        def set_attr(self, attr_name, value, indices=None): ...

        def env_method(self, method_name, *args, indices=None, **kwargs): ...

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False, False]

    with pytest.warns(UserWarning, match="render_mode"):
        env = Minimal(2, spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    assert env.render_mode is None
    assert env.metadata == {"render_modes": []}
    assert env.step("x")[0] == "x"
    assert PassOn(env).step("y")[0] == "y"
    with pytest.raises(NotImplementedError, match="Minimal"):
        env.get_images()


def test_cloudpickle_wrapper():
    import pickle

    offset = 3
    carried = pickle.loads(pickle.dumps(CloudpickleWrapper(lambda x: x + offset)))
    assert carried.var(1) == carried(1) == 4
