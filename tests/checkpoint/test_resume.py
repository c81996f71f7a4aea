"""A file written by a callback in the middle of a collection: training that goes on from it misses nothing."""

import copy
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import A2C, DDPG, DQN, PPO, SAC, TD3
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import DummyVecEnv, Monitor, VecNormalize
from polyak.envs.testing import BitFlippingEnv
from polyak.experience import HerReplayBuffer
from polyak.noise import OrnsteinUhlenbeckActionNoise
from polyak.warning import forget
from tests.pairs import one_of_each
from tests.worlds import World


class Walk(World):
    """A random walk that is terminated or cut short now and then, and says odd things in its infos."""

    def __init__(self, continuous: bool, composed: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-2, 2, (2,), np.float32) if continuous else spaces.Discrete(3)
        if composed:
            self.action_space = spaces.Dict(a=self.action_space, b=spaces.Tuple((spaces.Discrete(3, start=2),)))

    def begin(self) -> None:
        self.state = self.np_random.normal(size=3)

    def look(self) -> np.ndarray:
        return self.state.astype(np.float32)

    def act(self, action: Any) -> float:
        if isinstance(action, dict):
            action = action["a"] + action["b"][0]
        self.state = 0.9 * self.state + 0.1 * np.sum(action) + 0.1 * self.np_random.normal(size=3)
        return float(self.state.sum())

    def over(self) -> bool:
        self.truncates = self.t == 7
        return self.truncates or self.np_random.random() < 0.05

    def info(self) -> dict[str, Any]:
        return {"function": lambda: None, "array": self.state, "nested": {"x": [1, None]}}


class Opaque(Walk):
    """One that holds something which is no plain data, so that its state cannot be read."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lock = threading.Lock()


def walks(n: int, continuous: bool, composed: bool = False, kind: type[Walk] = Walk) -> DummyVecEnv:
    return DummyVecEnv([lambda: Monitor(kind(continuous, composed))] * n)


def ou() -> OrnsteinUhlenbeckActionNoise:
    return OrnsteinUhlenbeckActionNoise(np.zeros(2), np.full(2, 0.5))


ON: dict[str, Any] = {"device": "cpu", "seed": 0, "policy_kwargs": {"net_arch": [8]}}
OFF: dict[str, Any] = {**ON, "learning_starts": 20, "batch_size": 8, "buffer_size": 300}
CASES: dict[str, Any] = {
    "PPO": lambda: PPO("MlpPolicy", walks(2, True), n_steps=30, batch_size=20, n_epochs=2, **ON),
    "PPO normalised": lambda: PPO("MlpPolicy", VecNormalize(walks(2, False)), n_steps=30, batch_size=20, **ON),
    "PPO gSDE": lambda: PPO(
        "MlpPolicy", walks(2, True), n_steps=30, batch_size=20, use_sde=True, sde_sample_freq=4, **ON
    ),
    "PPO composed": lambda: PPO("MlpPolicy", walks(2, True, composed=True), n_steps=30, batch_size=20, **ON),
    "A2C": lambda: A2C("MlpPolicy", walks(3, False), n_steps=8, **ON),
    "DQN": lambda: DQN("MlpPolicy", walks(1, False), train_freq=5, target_update_interval=12, **OFF),
    "DQN by episodes": lambda: DQN("MlpPolicy", walks(1, False), train_freq=(2, "episode"), gradient_steps=-1, **OFF),
    "SAC": lambda: SAC("MlpPolicy", walks(2, True), train_freq=3, **OFF),
    "SAC gSDE": lambda: SAC("MlpPolicy", walks(2, True), train_freq=7, use_sde=True, sde_sample_freq=3, **OFF),
    "SAC overlapping": lambda: SAC("MlpPolicy", walks(2, True), train_freq=3, overlap=True, **OFF),
    "SAC normalised": lambda: SAC("MlpPolicy", VecNormalize(walks(1, True)), train_freq=1, **OFF),
    "TD3": lambda: TD3("MlpPolicy", walks(2, True), action_noise=ou(), train_freq=4, gradient_steps=-1, **OFF),
    "DDPG": lambda: DDPG("MlpPolicy", walks(1, True), action_noise=ou(), train_freq=(1, "episode"), n_steps=3, **OFF),
    "SAC HER": lambda: SAC(
        "MultiInputPolicy",
        DummyVecEnv([lambda: BitFlippingEnv(n_bits=3, continuous=True, max_steps=5)] * 2),
        replay_buffer_class=HerReplayBuffer,
        train_freq=4,
        **{**OFF, "learning_starts": 30},
    ),
}
TOTAL = 130


class Save(BaseCallback):
    """Saves the model, and copies its environment, at one step."""

    def __init__(self, at: int, path: Path) -> None:
        super().__init__()
        self.at, self.path, self.env = at, path, None

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at and self.env is None:
            env = self.training_env
            bare = env.venv if isinstance(env, VecNormalize) else env  # the file has the statistics
            self.env, self.steps = copy.deepcopy(bare), self.num_timesteps
            off_policy = hasattr(self.model, "replay_buffer")
            self.model.save(self.path, include=["replay_buffer"] if off_policy else [])
        return True


def everything(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {name: value.numpy().copy() for name, value in model.learner.networks().items()}
    for name in ("num_timesteps", "_n_updates", "_episode_num"):
        found[name] = getattr(model, name)
    found["episodes"] = [(float(episode["r"]), episode["l"]) for episode in model.ep_info_buffer]
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        found |= {f"buffer {key}": value for key, value in buffer.state_dict().items()}
    found["numpy"], found["torch"] = np.random.get_state()[1], torch.get_rng_state().numpy()
    return found


QUICK = ("PPO normalised", "PPO gSDE", "DQN by episodes", "SAC gSDE", "TD3", "SAC HER")


def moments(case: str) -> list[Any]:
    """Within the first rollout, the second, and late; for most cases all or two of them are slow tests."""
    quick = {"PPO": (45, 70, 101), "SAC overlapping": (45, 101)}.get(case, (70,) if case in QUICK else ())
    return [pytest.param(case, at, marks=[] if at in quick else [pytest.mark.slow]) for at in (45, 70, 101)]


@pytest.mark.parametrize(("case", "at"), [moment for case in CASES for moment in moments(case)])
def test_resumed_in_the_middle_it_goes_on_bit_by_bit(case: str, at: int, tmp_path: Path) -> None:
    model, save = CASES[case](), Save(at, tmp_path / "model.zip")
    model.learn(TOTAL, callback=save)
    expected = everything(model)
    torch.manual_seed(99)
    np.random.seed(99)
    env = CASES[case]().get_env()  # made again
    bare = env.venv if isinstance(env, VecNormalize) else env
    given = {"env": save.env, "force_reset": False} if case == "SAC overlapping" else {"env": bare}
    with warnings.catch_warnings():
        if case != "SAC overlapping":  # whose environments are in the middle of a step when a file is written
            warnings.filterwarnings("error", "training resumes with new episodes")
        resumed = type(model).load(tmp_path / "model.zip", resume=True, device="cpu", **given)
    assert resumed.num_timesteps == save.steps
    resumed.learn(TOTAL - save.steps, reset_num_timesteps=False)
    found = everything(resumed)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_equal(found[key], value, err_msg=key)


def test_a_checkpoint_callbacks_two_files_hold_every_transition(tmp_path: Path) -> None:
    env = walks(1, False)
    model = DQN("MlpPolicy", env, train_freq=5, **OFF)
    callback = CheckpointCallback(33, str(tmp_path), save_replay_buffer=True)
    model.learn(60, callback=callback)
    resumed = DQN.load(tmp_path / "rl_model_33_steps.zip", env=env, resume=True, force_reset=False, device="cpu")
    resumed.load_replay_buffer(tmp_path / "rl_model_replay_buffer_33_steps.pkl")
    assert resumed.replay_buffer.size() == 32
    resumed.learn(2, reset_num_timesteps=False)
    assert resumed.replay_buffer.size() == 35
    for name in ("observations", "next_observations", "actions", "rewards", "dones"):
        kept, once = (getattr(m.replay_buffer, name)[:33] for m in (resumed, model))
        np.testing.assert_array_equal(kept, once)


def test_new_episodes_after_resuming_lose_nothing_either(tmp_path: Path) -> None:
    model = SAC("MlpPolicy", walks(2, True, kind=Opaque), train_freq=3, **OFF)

    def save(model: SAC) -> bool:
        model.save(tmp_path / "model.zip", include=["replay_buffer"])
        return True

    model.learn(80, callback=lambda names, _: names["self"].num_timesteps != 70 or save(names["self"]))
    with pytest.warns(UserWarning, match=r"resumes with new episodes.*the attribute lock of Opaque is a _thread.lock"):
        resumed = SAC.load(tmp_path / "model.zip", env=walks(2, True, kind=Opaque), resume=True, device="cpu")
    assert resumed.replay_buffer.size() == 34
    resumed.learn(6, reset_num_timesteps=False)
    assert resumed.replay_buffer.size() == 38
    stored, once = resumed.replay_buffer, model.replay_buffer
    np.testing.assert_array_equal(stored.observations[:35], once.observations[:35])
    assert stored.dones[34].all(), "the episodes were cut there"


def test_a_stopping_callback_leaves_nothing_pending() -> None:
    model = CASES["DQN"]()
    model.learn(60, callback=lambda names, _: names["self"].num_timesteps < 33)
    assert model._collection is None
    assert model.replay_buffer.size() == 32  # the step at which a callback stops is not stored
    model.learn(4, reset_num_timesteps=False)
    assert model.replay_buffer.size() == 37


def test_a_copy_made_in_a_callback_has_every_transition() -> None:
    copies: list[Any] = []

    def keep(names: dict[str, Any], _: Any) -> bool:
        if names["self"].num_timesteps == 33:
            copies.append(copy.deepcopy(names["self"]))
        return True

    CASES["DQN"]().learn(40, callback=keep)
    copies[0].learn(5, reset_num_timesteps=False)
    assert copies[0].replay_buffer.size() == copies[0].num_timesteps


# -- episodes after resuming -------------------------------------------------------------------------------------------


class FirstStates(BaseCallback):
    """Keeps the observations of the first step of a training."""

    def _on_training_start(self) -> None:
        self.seen = np.array(self.model._last_obs)

    def _on_step(self) -> bool:
        return True


def first_states(model: Any, **options: Any) -> np.ndarray:
    callback = FirstStates()
    model.learn(20, callback=callback, **options)
    return callback.seen


@pytest.mark.filterwarnings("ignore:training resumes with new episodes")
@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("case", one_of_each(["PPO", "SAC", "TD3", "DQN"], "PPO", "DQN"))
def test_episodes_after_resuming_are_others_than_the_first_ones_and_can_be_repeated(
    case: str, resume: bool, tmp_path: Path
) -> None:
    continuous, n_envs = case != "DQN", 1 if case == "DQN" else 2
    model = CASES[case]()
    model.set_env(walks(n_envs, continuous, kind=Opaque))
    model.set_random_seed(model.seed)
    begun = first_states(model)
    model.save(tmp_path / "model.zip", include=[] if case == "PPO" else ["replay_buffer"])

    def again(seed: int | None = None, **options: Any) -> np.ndarray:
        env = walks(n_envs, continuous, kind=Opaque)
        loaded = type(model).load(tmp_path / "model.zip", env=env, resume=resume, device="cpu")
        if seed is not None:
            env.seed(seed)
        return first_states(loaded, **options)

    resumed = again(reset_num_timesteps=False)
    assert not np.isin(resumed, begun).any()
    np.testing.assert_array_equal(again(reset_num_timesteps=False), resumed)
    assert not np.isin(again(seed=5, reset_num_timesteps=False), resumed).any()  # what the user says counts
    np.testing.assert_array_equal(again(), resumed if resume else begun)  # counted anew, a plain load begins anew


def test_a_file_without_steps_begins_with_the_seed(tmp_path: Path) -> None:
    model = CASES["PPO"]()
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip", env=walks(2, True), resume=True, device="cpu")
    np.testing.assert_array_equal(first_states(loaded, reset_num_timesteps=False), first_states(model))


# -- experience and statistics of the file -----------------------------------------------------------------------------


@pytest.mark.parametrize("resume", [True, False])
def test_without_its_replay_buffer_a_model_says_so_and_collects_before_it_learns(resume: bool, tmp_path: Path) -> None:
    forget()
    model = CASES["DQN"]().learn(50)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    loaded = DQN.load(tmp_path / "model.zip", env=walks(1, False), resume=resume, device="cpu")
    before = model.q_net.state_dict()
    with pytest.warns(UserWarning, match=r"made 50 steps, but its replay buffer is empty.*save_replay_buffer\(\)"):
        loaded.learn(20, reset_num_timesteps=False)
    assert loaded._n_updates == model._n_updates
    assert all(torch.equal(before[name], now) for name, now in loaded.q_net.state_dict().items())
    assert loaded.replay_buffer.size() == 20  # learning_starts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.learn(5, reset_num_timesteps=False)
        assert loaded._n_updates == model._n_updates + 1
        loaded = DQN.load(tmp_path / "model.zip", env=walks(1, False), device="cpu")
        loaded.load_replay_buffer(tmp_path / "buffer.pkl")
        loaded.learn(5, reset_num_timesteps=False)  # with its experience it learns at once
        assert loaded._n_updates == model._n_updates + 1
        DQN.load(tmp_path / "model.zip", env=walks(1, False), device="cpu").learn(5)  # which begins again


def normalised(path: Path) -> PPO:
    model = CASES["PPO normalised"]().learn(60)
    model.save(path)
    return model


def test_a_new_vec_normalize_takes_the_statistics_of_the_file(tmp_path: Path) -> None:
    model = normalised(tmp_path / "model.zip")
    known = model.get_vec_normalize_env()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = VecNormalize(walks(2, False), training=False, norm_reward=False)
        loaded = PPO.load(tmp_path / "model.zip", env=env, device="cpu")
        assert loaded.get_env() is env
        assert env.same_statistics(known)
        assert (env.training, env.norm_reward) == (False, False)  # settings are the user's
        known.save(tmp_path / "statistics.pkl")
        PPO.load(tmp_path / "model.zip", env=VecNormalize.load(tmp_path / "statistics.pkl", walks(2, False)))
        model.set_env(env := VecNormalize(walks(2, False)))
        assert env.same_statistics(known)
    env = VecNormalize(walks(2, False), clip_obs=3.0)
    with pytest.warns(
        UserWarning, match=r"has a VecNormalize with clip_obs=3.0, and the model learned with clip_obs=10.0"
    ):
        model.set_env(env)
    assert env.same_statistics(known)
    assert env.clip_obs == 3.0


@pytest.mark.parametrize("how", ["load", "set_env"])
def test_a_vec_normalize_with_other_statistics_is_kept_with_a_word(how: str, tmp_path: Path) -> None:
    model = normalised(tmp_path / "model.zip")
    own = VecNormalize(walks(2, False))
    own.reset()
    without = VecNormalize(walks(2, False), norm_obs=False)
    for env, reason in ((own, "it has statistics of its own"), (without, "it has norm_obs=False, they")):
        before = env.state_dict()
        take = model.set_env if how == "set_env" else partial(PPO.load, tmp_path / "model.zip", device="cpu")
        with pytest.warns(UserWarning, match=reason):
            model = take(env=env) or model
        np.testing.assert_equal(env.state_dict(), before)
        assert model.get_env() is env
        model = PPO.load(tmp_path / "model.zip", env=walks(2, False), device="cpu")


def test_after_more_training_a_bare_environment_gets_the_newest_statistics(tmp_path: Path) -> None:
    normalised(tmp_path / "model.zip")
    model = PPO.load(tmp_path / "model.zip", env=walks(2, False), device="cpu").learn(60)
    newest = model.get_vec_normalize_env()
    model.set_env(walks(2, False))
    assert model.get_vec_normalize_env() is not newest
    assert model.get_vec_normalize_env().same_statistics(newest)
