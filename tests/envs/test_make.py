"""Making environments by name, and the errors when it does not work."""

import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.make import is_wrapped, make_atari_env, make_env, make_vec_env, unwrap_wrapper
from polyak.envs.testing import BitFlippingEnv
from polyak.envs.vec.subproc import SubprocVecEnv
from polyak.envs.wrappers.monitor import Monitor
from tests.warm import python


def layers(env):
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


@pytest.mark.parametrize("env_id", ["CartPole-v1", gym.spec("CartPole-v1"), lambda **kw: gym.make("CartPole-v1", **kw)])
def test_monitor_first_then_the_wrapper(env_id):
    venv = make_vec_env(
        env_id,
        n_envs=2,
        env_kwargs={"sutton_barto_reward": True},
        wrapper_class=gym.wrappers.TimeLimit,
        wrapper_kwargs={"max_episode_steps": 5},
        monitor_kwargs={"info_keywords": ("TimeLimit.truncated",), "allow_early_resets": True},
    )
    assert isinstance(venv, DummyVecEnv)
    assert venv.num_envs == 2
    assert layers(venv.envs[0])[:2] == ["TimeLimit", "Monitor"]
    assert venv.get_attr("_sutton_barto_reward") == [True, True]
    assert venv.env_is_wrapped(Monitor) == [True, True]


def test_other_vec_env():
    kwargs = {"start_method": "fork", "n_workers": 2}
    venv = make_vec_env("CartPole-v1", n_envs=3, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs=kwargs)
    with venv:
        assert len(venv.processes) == 2
        np.testing.assert_array_equal(venv.reset(), make_vec_env("CartPole-v1", n_envs=3, seed=0).reset())
        assert venv.env_is_wrapped(Monitor) == [True] * 3


def test_render_mode_only_where_it_is_taken():
    assert make_vec_env("CartPole-v1").render_mode == "rgb_array"
    assert make_vec_env("CartPole-v1", env_kwargs={"render_mode": None}).render_mode is None

    class Plain(BitFlippingEnv):
        def __init__(self, n_bits=3):
            super().__init__(n_bits, render_mode=None)

    gym.register("PlainForTest-v0", entry_point=Plain)
    try:
        assert make_vec_env("PlainForTest-v0", env_kwargs={"n_bits": 4}).get_attr("n_bits") == [4]
    finally:
        del gym.registry["PlainForTest-v0"]


@pytest.mark.parametrize("modes", [[], ["ansi"], ["rgb_array"]])
def test_images_are_not_asked_for_where_there_are_none(modes):
    class Mine(BitFlippingEnv):
        metadata = {"render_modes": modes}

        def __init__(self, render_mode=None):
            super().__init__(3, render_mode=None)
            self.asked_for = render_mode

    gym.register("ModesForTest-v0", entry_point=Mine, disable_env_checker=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            venv = make_vec_env("ModesForTest-v0")
    finally:
        del gym.registry["ModesForTest-v0"]
    assert venv.get_attr("asked_for") == ["rgb_array" if "rgb_array" in modes else None]


def test_wrapped_and_unwrap():
    env = Monitor(gym.make("CartPole-v1"))
    assert is_wrapped(env, Monitor)
    assert unwrap_wrapper(env, Monitor) is env
    assert isinstance(unwrap_wrapper(env, gym.wrappers.TimeLimit), gym.wrappers.TimeLimit)
    assert not is_wrapped(env, gym.wrappers.RescaleAction)
    assert unwrap_wrapper(env, gym.wrappers.RescaleAction) is None


# --- errors ---


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", r"env_id='CartPol-v1' is not a registered environment. Did you mean 'CartPole-v\d'.* or '"),
        ("cartpole-v1", "Did you mean 'CartPole-v1'"),
        ("CartPole-v9", "'CartPole-v9' is not a registered environment.*Did you mean 'CartPole-v1'"),
        ("Xqzk-v0", r"'Xqzk-v0' is not a registered environment. An environment of your own.*your_module:Xqzk-v0"),
        ("NoSpace/Xqzk-v0", "not a registered environment"),
        ("AcrobotNoVel-v1", "not a registered environment"),
        ("CartPoleNoVel-v77", "not a registered environment"),
    ],
)
def test_unknown_names(env_id, message):
    for make in (make_env, make_vec_env):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            make(env_id)


def test_unknown_module():
    with pytest.raises(ImportError, match="module 'no_such_module_at_all' of environment"):
        make_env("no_such_module_at_all:Foo-v0")


def test_module_in_front_of_the_name(tmp_path, monkeypatch):
    (tmp_path / "my_envs_for_test.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', entry_point='polyak.envs.testing:BitFlippingEnv')\n"
    )
    (tmp_path / "broken_for_test.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert isinstance(make_env("my_envs_for_test:Mine-v0").unwrapped, BitFlippingEnv)
        assert make_vec_env("my_envs_for_test:Mine-v0", env_kwargs={"render_mode": None}).num_envs == 1
    finally:
        gym.registry.pop("Mine-v0", None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module_at_all'"):
        make_env("broken_for_test:Mine-v0")


def test_bad_arguments():
    with pytest.raises(ValueError, match="n_envs must be at least 1, got 0"):
        make_vec_env("CartPole-v1", n_envs=0)
    with pytest.raises(TypeError, match="env_id must be the name"):
        make_vec_env(gym.make("CartPole-v1"))


@pytest.mark.parametrize(
    ("module", "env_id", "extra"), [("mujoco", "HalfCheetah-v5", "mujoco"), ("Box2D", "LunarLander-v3", "box2d")]
)
def test_missing_package_names_the_extra(monkeypatch, module, env_id, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == module or f"gymnasium.envs.{extra}" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{env_id} needs a package.*pip install 'polyak\[{extra}\]'"):
        make_env(env_id)


def test_missing_ale_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in [name for name in gym.registry if name.startswith("ALE/") or "NoFrameskip" in name]:
        monkeypatch.delitem(gym.registry, name)
    for make in (make_atari_env, make_vec_env, make_env):
        with pytest.raises(ImportError, match=r"needs ale-py: pip install 'polyak\[atari\]'"):
            make("ALE/Breakout-v5")
    with pytest.raises(ImportError, match=r"polyak\[atari\]"):
        make_env("BreakoutNoFrameskip-v4")


def test_atari_names_are_registered_when_needed():
    pytest.importorskip("ale_py")
    code = """if True:
        from polyak.envs.make import make_env
        print(make_env("ALE/Pong-v5").observation_space.shape)
        print(make_env("PongNoFrameskip-v4").spec.id)
        try: make_env("ALE/Brakout-v5")
        except ValueError as error: print(error)
    """
    done = python(["-c", code])
    assert done.stdout.splitlines()[:2] == ["(210, 160, 3)", "PongNoFrameskip-v4"], done.stderr
    assert "Did you mean 'ALE/Breakout-v5'" in done.stdout
