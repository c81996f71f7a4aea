"""Each mistake that a user can make gets an error that names the argument, the value and the fix."""

import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak import A2C, DDPG, DQN, PPO, SAC, TD3
from polyak.algorithms import get
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import BitFlippingEnv, DummyVecEnv, EnvWorkerError, SubprocVecEnv, check_env, make_vec_env
from polyak.experience import HerReplayBuffer
from polyak.experience.hindsight.relabel import GOAL_KEYS


class Fake(gym.Env):
    """An environment that gives whatever it is told to."""

    def __init__(self, observation: Any = None, action_space: spaces.Space | None = None, reply: Any = None) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.observation = np.zeros(3, np.float32) if observation is None else observation
        self.reply = reply

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return self.reply or (self.observation, 0.0, False, False, {})


def test_unknown_algorithm() -> None:
    with pytest.raises(ValueError, match="'pppo' is unknown.*a2c.*Did you mean 'ppo'"):
        get("pppo")
    with pytest.raises(AttributeError, match="no attribute 'PPPO'"):
        polyak.PPPO  # noqa: B018


def test_unknown_environment() -> None:
    with pytest.raises(ValueError, match="CartPol-v1.*CartPole"):
        PPO("MlpPolicy", "CartPol-v1")
    with pytest.raises(ValueError, match="env=3 is not an environment"):
        PPO("MlpPolicy", 3)


@pytest.mark.parametrize("cls", [PPO, A2C, DQN, SAC, TD3, DDPG])
def test_unknown_policy(cls: Any) -> None:
    with pytest.raises(ValueError, match="'MplPolicy' unknown.*MlpPolicy"):
        cls("MplPolicy", "Pendulum-v1")


def test_unbounded_and_unhandled_action_spaces() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    with pytest.raises(ValueError, match="finite bounds"):
        SAC("MlpPolicy", Fake(action_space=unbounded), buffer_size=10)
    with pytest.raises(ValueError, match="Multi-dimensional MultiBinary"):
        PPO("MlpPolicy", Fake(action_space=spaces.MultiBinary([2, 2])))
    with pytest.raises(ValueError, match="only supports"):
        PPO("MlpPolicy", Fake(action_space=spaces.Text(3)))


def test_spaces_without_entries() -> None:
    nothing, env = spaces.Box(-1, 1, (0,)), Fake()
    env.observation_space = nothing
    with pytest.raises(ValueError, match=r"observation space Box.*\(0,\).* has no entries.*spaces.Discrete\(1\)"):
        PPO("MlpPolicy", env)
    env.observation_space = spaces.Dict(a=spaces.Discrete(2), b=nothing)
    with pytest.raises(ValueError, match="at key 'b' has no entries"):
        DQN("MultiInputPolicy", env, buffer_size=10)
    for cls in (PPO, SAC):
        with pytest.raises(ValueError, match=r"action space Box.*has no entries.*Give it one"):
            cls("MlpPolicy", Fake(action_space=nothing))


NO_NUMBERS = [
    None,
    "text",
    {"a": 1},
    [0, [1, 2]],
    np.array([1j, 0, 0]),
    np.array(["1", "2", "3"]),
    np.array([None, 1.0, 2.0]),
    np.array([1, 2, 3], "datetime64[s]"),
]


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
def test_observations_that_are_no_numbers(bad: Any) -> None:
    """In the first step, and when observations are written without a further look."""
    for steps in (0, 4):
        env = Fake(np.zeros(3, np.float64))
        envs = DummyVecEnv([lambda env=env: env])
        envs.reset()
        for _ in range(steps):
            envs.step([0])
        env.observation = bad
        with pytest.raises(ValueError, match=r"(?s)Fake returned the observation .* but its space Box.* has real num"):
            envs.step([0])
    with pytest.raises(ValueError, match="The observation must be"):
        PPO("MlpPolicy", Fake()).predict(bad)


def test_batch_larger_than_the_rollout() -> None:
    with pytest.raises(ValueError, match="batch_size=64.*n_steps [*] n_envs = 8 [*] 1 = 8.*batch_size=8"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8)
    with pytest.warns(UserWarning, match="truncated mini-batch of size 4"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=20, batch_size=8)


def test_a_loaded_model_with_fewer_environments_predicts_and_says_why_it_cannot_learn(tmp_path: Any) -> None:
    eight = DummyVecEnv([lambda: gym.make("CartPole-v1") for _ in range(8)])
    PPO("MlpPolicy", eight, n_steps=8, batch_size=64).save(tmp_path / "m")
    loaded = PPO.load(tmp_path / "m", env="CartPole-v1")
    loaded.predict(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="batch_size=64.*= 8 rows"):
        loaded.learn(8)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"tau": 2}, "tau=2"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"buffer_size": 0}, "buffer_size=0"),
        ({"train_freq": 0}, "train_freq=0"),
        ({"train_freq": (1, "epoch")}, "step.*episode"),
        ({"gradient_steps": -2}, "gradient_steps=-2"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"seed": -1}, "seed=-1"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"ent_coef": "automatic"}, "ent_coef='automatic'"),
        ({"target_update_interval": 0}, "target_update_interval=0"),
        ({"stats_window_size": 0}, "stats_window_size=0"),
    ],
)
def test_values_out_of_range(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SAC("MlpPolicy", "Pendulum-v1", **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clip_range": -0.1}, "clip_range=-0.1"),
        ({"clip_range_vf": 0.0}, "clip_range_vf=0.0.*positive"),
        ({"target_kl": 0.0}, "target_kl=0.0"),
        ({"n_epochs": 0}, "n_epochs=0"),
        ({"batch_size": 1}, "batch_size=1"),
        ({"gae_lambda": 1.1}, "gae_lambda=1.1"),
        ({"max_grad_norm": -0.5}, "max_grad_norm=-0.5"),
        ({"n_steps": 0}, "n_steps=0"),
    ],
)
def test_values_out_of_range_on_policy(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        PPO("MlpPolicy", "CartPole-v1", **options)


@pytest.mark.parametrize(
    ("cls", "options", "match"),
    [
        (SAC, {"learning_rate": "3e-4"}, "learning_rate='3e-4'.*number.*Write learning_rate=3e-4, without quotes"),
        (PPO, {"n_steps": "64"}, "n_steps='64'.*integer.*Write n_steps=64"),
        (PPO, {"n_steps": 2.5}, "n_steps=2.5.*integer of at least 1"),
        (PPO, {"seed": "a"}, "seed='a'.*integer"),
        (PPO, {"verbose": "yes"}, "verbose='yes'.*integer"),
        (PPO, {"learning_rate": np.inf}, "learning_rate=inf.*a finite number of at least 0"),
        (SAC, {"learning_rate": lambda _: np.inf}, "learning_rate: .* returned inf with 1 of the training left"),
        (PPO, {"clip_range": lambda _: np.nan}, "clip_range: .* returned nan with 1 of the training left.*a number"),
        (PPO, {"ent_coef": "auto"}, "ent_coef='auto'.*number of at least 0"),
        (PPO, {"ent_coef": -1}, "ent_coef=-1"),
        (SAC, {"ent_coef": -1}, "ent_coef=-1"),
        (SAC, {"ent_coef": "0.1"}, "ent_coef='0.1'.*give a number, 'auto', or 'auto_"),
        (PPO, {"vf_coef": None}, "vf_coef=None.*number"),
        (PPO, {"gamma": np.nan}, "gamma=nan"),
        (PPO, {"tensorboard_log": 5}, "tensorboard_log=5"),
        (PPO, {"policy_kwargs": [64]}, r"policy_kwargs=\[64\].*dict"),
        (PPO, {"policy_kwargs": {"optimizer_class": "adam"}}, "optimizer_class'.='adam'.*the class itself"),
        (PPO, {"policy_kwargs": {"features_extractor_class": "cnn"}}, "features_extractor_class'.='cnn'.*the class"),
        (PPO, {"policy_kwargs": {"optimizer_kwargs": 1e-5}}, "optimizer_kwargs'.=1e-05.*dict"),
        (SAC, {"replay_buffer_class": "HER"}, "replay_buffer_class='HER'.*Pass the class itself, not its name"),
        (SAC, {"replay_buffer_class": dict}, "replay_buffer_class=.*subclass of ReplayBuffer"),
        (SAC, {"action_noise": 0.1}, "action_noise=0.1.*instance of ActionNoise"),
        (SAC, {"train_freq": "step"}, "train_freq='step'.*tuple"),
        (SAC, {"train_freq": (1.5, "step")}, r"train_freq=\(1.5"),
        (PPO, {"compile": "yes"}, "compile='yes'.*True or False, or 'auto'"),
        (PPO, {"precision": "float16"}, "precision='float16'.*'float32' or 'bfloat16'"),
        (PPO, {"clip_range": "lin_0.2"}, "clip_range='lin_0.2'.*function of the remaining progress"),
    ],
)
def test_values_of_the_wrong_type(cls: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        cls("MlpPolicy", "Pendulum-v1", **options)


def test_what_else_users_of_numpy_and_yaml_pass_is_taken() -> None:
    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=np.float32(1e-3),
        buffer_size=1e3,
        batch_size=np.int64(8),
        learning_starts=10.0,
        train_freq=[2, "step"],
        gradient_steps=np.int32(1),
        target_entropy=-1,
        use_sde=np.bool_(True),
        verbose=False,
        device=torch.device("cpu"),
        policy_kwargs={"net_arch": [8]},
    )
    assert type(model.buffer_size) is int
    assert type(model.learning_starts) is int
    model.learn(14)
    assert model.learner.target_entropy == -1


@pytest.mark.parametrize("policy", [torch.nn.Linear, 3, None])
def test_something_else_than_a_policy(policy: Any) -> None:
    with pytest.raises(ValueError, match="policy=.*'MlpPolicy'.*subclass of Policy"):
        PPO(policy, "CartPole-v1")


def test_the_closest_name_is_suggested() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_step'. Did you mean 'n_steps'?"):
        PPO("MlpPolicy", "CartPole-v1", n_step=8)
    with pytest.raises(ValueError, match="'MLPPolicy' unknown.*Did you mean 'MlpPolicy'?"):
        PPO("MLPPolicy", "CartPole-v1")
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'.$"):
        PPO("MlpPolicy", "CartPole-v1", zzz=8)


def test_a_vector_class_by_its_name() -> None:
    with pytest.raises(TypeError, match="vec_env_cls='subproc'.*SubprocVecEnv"):
        make_vec_env("CartPole-v1", vec_env_cls="subproc")  # type: ignore[arg-type]


def test_calls_that_cannot_be_meant(tmp_path: Any) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1)
    for steps, match in ((-5, "total_timesteps=-5"), (np.nan, "total_timesteps=nan"), ("9", "Write total_timesteps=9")):
        with pytest.raises(ValueError, match=match):
            model.learn(steps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="log_interval=0"):
        model.learn(8, log_interval=0)
    with pytest.raises(ValueError, match="logger='x'.*Logger"):
        model.set_logger("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"exclude=\['n_step'\].*Did you mean 'n_steps'?"):
        model.save(tmp_path / "m", exclude=["n_step"])
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "m", exclude=["n_epochs", "env", "logger", "rollout_buffer"])
    assert PPO.load(tmp_path / "m").n_epochs == 10
    assert model.learn(1e1).num_timesteps == 16  # type: ignore[arg-type]
    assert model.learn(0).num_timesteps == 0


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.zip").mkdir()
    inside = tmp_path / "file" / "deep" / "m"
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1)
    is_file = r"='.*file.*' cannot be written: '.*file' is a file, not a folder.*Name a place in a folder that"
    with pytest.raises(NotADirectoryError, match="path" + is_file):
        model.save(inside)
    with pytest.raises(NotADirectoryError, match="path" + is_file):
        polyak.collect("CartPole-v1", None, 8).save(inside)
    with pytest.raises(NotADirectoryError, match="save_path" + is_file):
        model.learn(8, CheckpointCallback(8, inside))
    with pytest.raises(NotADirectoryError, match="folder" + is_file):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, tensorboard_log=str(inside)).learn(8)
    with pytest.raises(FileExistsError, match=r"path='.*folder.zip' is a folder already: delete it, or give another"):
        model.save(tmp_path / "folder.zip")
    with pytest.raises(ValueError, match=r"path='.*' cannot be written: embedded null byte"):
        model.save("a\0b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.zip"]


def test_gradients_may_be_clipped_to_nothing() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1, max_grad_norm=0, device="cpu")
    before = model.policy.parameters_to_vector()
    model.learn(8)
    np.testing.assert_array_equal(model.policy.parameters_to_vector(), before)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tqdm", "tqdm.rich", "rich"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"polyak\[extra\]"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=64).learn(64, progress_bar=True)


# -- mistakes in environments and callbacks ----------------------------------------------------------------------------

QUIET = np.zeros(3, np.float32)


@pytest.mark.parametrize("monitored", [True, False])
@pytest.mark.parametrize("reward", [None, "1", 1j, [1.0], np.zeros(2), np.array("1")], ids=repr)
def test_a_reward_that_is_no_number(reward: Any, monitored: bool) -> None:
    env = Fake(reply=(QUIET, reward, False, False, {}))
    model = PPO("MlpPolicy", env if monitored else DummyVecEnv([lambda: env]), n_steps=8, batch_size=8)
    shown = re.escape(repr(reward))
    with pytest.raises(ValueError, match=rf"Fake returned the reward {shown} \(\w+\), which is not a number.*float"):
        model.learn(8)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(1), np.array(1.0), Fraction(1, 2)], ids=repr)
def test_every_kind_of_number_is_a_reward(reward: Any) -> None:
    env = DummyVecEnv([lambda: Fake(reply=(QUIET, reward, False, False, {}))])
    env.reset()
    assert env.step(np.zeros(1, int))[1] == float(reward)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("info", [None, [], "news"], ids=repr)
def test_an_info_that_is_no_dict(info: Any, ended: bool) -> None:
    env = Fake(reply=(QUIET, 0.0, ended, False, info))
    with pytest.raises(ValueError, match=rf"Fake returned the info {re.escape(repr(info))}.*not a dict.*Return \{{\}}"):
        PPO("MlpPolicy", env, n_steps=8, batch_size=8).learn(8)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
@pytest.mark.parametrize("value", [None, (3,)])
def test_an_environment_without_spaces(name: str, value: Any) -> None:
    env = Fake()
    if value is None:
        delattr(env, name)
    else:
        setattr(env, name, value)
    fix = rf"Fake has {name}={re.escape(repr(value))}.*self\.{name} = gymnasium\.spaces"
    with pytest.raises(ValueError, match=fix):
        PPO("MlpPolicy", env)
    with pytest.raises(EnvWorkerError, match=fix):
        SubprocVecEnv([lambda: env, lambda: env], start_method="fork")


@pytest.mark.parametrize(
    "other",
    [
        {"observation_space": spaces.Box(-1, 1, (4,), np.float32)},
        {"observation_space": spaces.Box(-1, 1, (3,), np.float64)},
        {"observation_space": spaces.Discrete(3)},
        {"action_space": spaces.Discrete(3)},
        {"action_space": spaces.Discrete(2, start=1)},
    ],
    ids=str,
)
def test_environments_of_different_spaces(other: dict[str, Any]) -> None:
    def changed() -> Fake:
        env = Fake()
        vars(env).update(other)
        return env

    (name,) = other
    match = f"same {name.split('_')[0]} space: environment 1 has {re.escape(str(other[name]))}, environment 0 has"
    with pytest.raises(ValueError, match=match):
        DummyVecEnv([Fake, changed])
    with pytest.raises(ValueError, match=match):
        SubprocVecEnv([Fake, changed], start_method="fork")


def test_environments_with_different_bounds_are_stepped_together() -> None:
    def wider() -> Fake:
        env = Fake()
        env.observation_space = spaces.Box(-2, 2, (3,), np.float32)
        return env

    assert DummyVecEnv([Fake, wider]).num_envs == 2


def test_workers_end_without_a_traceback_when_the_spaces_differ(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="same action space"):
        SubprocVecEnv([Fake, lambda: Fake(action_space=spaces.Discrete(3))], start_method="fork")
    assert "Traceback" not in capfd.readouterr().err


class Goals(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({key: spaces.Box(-1, 1, (2,)) for key in GOAL_KEYS})


def test_hindsight_without_goals_or_a_judge() -> None:
    options: dict[str, Any] = {"replay_buffer_class": HerReplayBuffer, "buffer_size": 100}
    with pytest.raises(AssertionError, match=r"HerReplayBuffer needs a Dict.*achieved_goal.*got Box.*goals"):
        DQN("MlpPolicy", Fake(), **options)
    with pytest.raises(ValueError, match=r"Goals instance.*no compute_reward.*compute_reward\(achieved_goal"):
        DQN("MultiInputPolicy", Goals(), **options)
    model = DQN("MultiInputPolicy", BitFlippingEnv(), **options)
    with pytest.raises(ValueError, match="no compute_reward"):
        model.replay_buffer.env = DummyVecEnv([Goals])


def test_a_callback_that_does_not_initialise_its_base() -> None:
    class Forgetful(BaseCallback):
        def __init__(self) -> None:
            self.seen = 0

        def _on_step(self) -> bool:
            return True

    for callback in (Forgetful(), [Forgetful()]):
        with pytest.raises(TypeError, match=r"Forgetful.__init__\(\) did not call super\(\).__init__\(\)"):
            PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).learn(8, callback=callback)


def test_observations_out_of_bounds_are_named_by_the_checker_only() -> None:
    env = Fake(observation=np.full(3, 2, np.float32))
    PPO("MlpPolicy", env, n_steps=8, batch_size=8).learn(8)
    with pytest.raises(AssertionError, match=r"out of bounds.*\n.*actual value: 2"):
        check_env(Fake(observation=np.full(3, 2, np.float32)))
