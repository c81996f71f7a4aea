"""Small mistakes that used to end in a raw error of Python's, or in none."""

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak import (
    DQN,
    PPO,
    QRDQN,
    SAC,
    TQC,
    CheckpointCallback,
    Dataset,
    DummyVecEnv,
    EvalCallback,
    EveryNTimesteps,
    HerReplayBuffer,
    Monitor,
    StopTrainingOnMaxEpisodes,
    SubprocVecEnv,
    VecNormalize,
    collect,
    evaluate,
    make_vec_env,
)
from polyak.compat.rllib_face import PPOConfig
from polyak.envs import BitFlippingEnv, VecVideoRecorder, check_env, get_monitor_files
from polyak.evaluation import in_environments as evaluation
from polyak.logging import configure
from polyak.warning import forget
from tests.worlds import World


class Short(World):
    """Episodes of three steps."""

    action_space: spaces.Space = spaces.MultiDiscrete([2, 3])
    length, pays = 3, 1.0
    success: Any = True

    def info(self) -> dict[str, Any]:
        return {"is_success": self.success} if self.over() else {}


def short(**attributes: Any) -> gym.Env:
    return type("Mine", (Short,), attributes)()


@pytest.mark.parametrize("cls", [DummyVecEnv, SubprocVecEnv])
@pytest.mark.parametrize("given", [lambda: Short(), Short, Short(), "CartPole-v1", 3])
def test_one_function_in_place_of_a_list(cls: Any, given: Any) -> None:
    with pytest.raises(TypeError, match=r"env_fns=.* must be a list of functions, one for each environment: \["):
        cls(given)


def test_a_trigger_that_is_a_number(tmp_path: Path) -> None:
    venv = make_vec_env("CartPole-v1")
    with pytest.raises(TypeError, match=r"record_video_trigger=20 must be a function.*lambda step"):
        VecVideoRecorder(venv, tmp_path / "films", 20)  # type: ignore[arg-type]
    assert not (tmp_path / "films").exists()


@pytest.mark.parametrize("success", ["yes", 2, np.array([True, False]), {}])
def test_a_success_that_is_none(success: Any) -> None:
    with pytest.raises(ValueError, match=r"step\(\) of Mine returned info\['is_success'\]=.*neither true nor false"):
        PPO("MlpPolicy", short(success=success), n_steps=8, batch_size=8).learn(8)


@pytest.mark.parametrize("success", [True, np.bool_(False), 1, 0.0, np.float32(1), None])
def test_a_success_in_any_usual_form(success: Any) -> None:
    PPO("MlpPolicy", short(success=success), n_steps=8, batch_size=8).learn(8)


@pytest.mark.parametrize(
    ("cls", "env", "options"),
    [
        (QRDQN, "CartPole-v1", {"n_quantiles": 2.5}),
        (TQC, "Pendulum-v1", {"n_quantiles": "25"}),
        (SAC, "Pendulum-v1", {"n_critics": 2.5}),
        (PPO, "CartPole-v1", {"net_arch": [64, 32.5]}),
        (PPO, "CartPole-v1", {"net_arch": {"pi": [64], "vf": ["64"]}}),
        (DQN, "CartPole-v1", {"net_arch": [-1]}),
        (SAC, "Pendulum-v1", {"net_arch": {"pi": [True], "qf": [8]}}),
    ],
)
def test_sizes_of_networks_that_are_no_integers(cls: Any, env: str, options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(ValueError, match=rf"policy_kwargs\['{name}'\]=.* cannot be used: give integers"):
        cls("MlpPolicy", env, policy_kwargs=options)


def test_a_reward_of_hindsight_that_reads_infos() -> None:
    class Reads(BitFlippingEnv):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            own = info is None  # of its own step
            return np.float32(0) if own else np.array([one["bonus"] for one in info], np.float32)

    model = DQN("MultiInputPolicy", Reads(), learning_starts=20, replay_buffer_class=HerReplayBuffer)
    with pytest.raises(KeyError, match="bonus") as caught:
        model.learn(200)
    assert any("'copy_info_dict': True" in note for note in getattr(caught.value, "__notes__", caught.value.args))


def test_a_class_without_config_for_rllibs_builder() -> None:
    class NoConfig(Short):
        def __init__(self) -> None:
            pass

    for given in (NoConfig, lambda: Short()):
        with pytest.raises(ValueError, match=r"it is called with its config.*def __init__\(self, config=None\)"):
            PPOConfig().environment(given).build_algo()


@pytest.mark.parametrize("masks", [None, np.ones(5, bool), [[True, True], [True, True, True]]])
def test_masks_as_an_attribute(masks: Any) -> None:
    with pytest.raises(ValueError, match=r"Mine has action_masks as an attribute.*def action_masks\(self\)"):
        PPO("MlpPolicy", short(action_masks=masks))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: EvalCallback("CartPole-v1", eval_freq=n),
        lambda n: EvalCallback("CartPole-v1", n_eval_episodes=n),
        lambda n: CheckpointCallback(n, "models"),
        lambda n: EveryNTimesteps(n, None),
        lambda n: StopTrainingOnMaxEpisodes(n),
    ],
)
def test_counts_of_callbacks_that_are_no_integers(make: Any) -> None:
    for wrong in (2.5, "3", None):
        with pytest.raises(ValueError, match="it must be an integer"):
            make(wrong)
    with pytest.raises(ValueError, match="n_eval_episodes=2.5 cannot be used: it must be an integer"):
        evaluate(PPO("MlpPolicy", "CartPole-v1"), "CartPole-v1", n_episodes=2.5)  # type: ignore[arg-type]
    made = vars(make(3e2))
    assert any(type(value) is int and value == 300 for value in made.values())


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(elsewhere)
    env = make_vec_env("CartPole-v1", monitor_dir="~/monitors")
    model = PPO("MlpPolicy", VecNormalize(env), n_steps=32, batch_size=32, seed=0)
    model.set_logger(configure("~/logs", ["csv"]))
    evaluation = EvalCallback(
        VecNormalize(make_vec_env("CartPole-v1"), training=False),
        eval_freq=32,
        n_eval_episodes=1,
        log_path="~/evaluations",
        best_model_save_path="~/best",
        verbose=0,
    )
    model.learn(32, callback=[CheckpointCallback(32, "~/checkpoints"), evaluation])
    model.save("~/model")
    PPO.load("~/model")
    model.get_vec_normalize_env().save("~/statistics.pkl")  # type: ignore[union-attr]
    VecNormalize.load("~/statistics.pkl", make_vec_env("CartPole-v1"))
    recorded = collect("CartPole-v1", None, 50, seed=0)
    recorded.save("~/recorded.npz")
    assert len(Dataset.load("~/recorded.npz")) == len(recorded)
    Monitor(gym.make("CartPole-v1"), "~/one").close()
    SAC("MlpPolicy", "Pendulum-v1").save_replay_buffer("~/replay.pkl")
    assert not os.listdir(elsewhere)
    made = {path.name for path in home.iterdir()}
    assert made >= {"model.zip", "logs", "evaluations", "best", "checkpoints", "recorded.npz", "statistics.pkl"}
    assert len(get_monitor_files("~/monitors")) == 1


def test_what_gymnasium_makes_of_a_name_is_taken() -> None:
    """CartPole has a vector of its own, which resets late."""
    made = gym.make_vec("CartPole-v1", num_envs=2, sutton_barto_reward=True)
    if made.metadata.get("autoreset_mode") != gym.vector.AutoresetMode.NEXT_STEP:
        pytest.skip("this Gymnasium's resets at once")
    with pytest.warns(UserWarning, match="made again, one by one.*make_vec_env"):
        model = PPO("MlpPolicy", made, n_steps=32, batch_size=32, seed=0)
    assert model.n_envs == 2
    assert model.env is not None
    model.env.reset()
    rewards, lengths = [], []
    for _ in range(300):
        _, reward, dones, infos = model.env.step(np.zeros(2, int))
        rewards += reward[dones].tolist()
        lengths += [infos[i]["episode"]["l"] for i in np.flatnonzero(dones)]
    assert set(rewards) == {-1.0}  # its arguments are kept
    assert min(lengths) > 5
    with pytest.raises(ValueError, match="NEXT_STEP"):
        PPO("MlpPolicy", gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("CartPole-v1", num_envs=2)))


def test_stacked_images() -> None:
    observed = spaces.Box(0, 255, (4, 40, 40, 3), np.uint8)
    for policy in ("CnnPolicy", "MultiInputPolicy"):
        space = observed if policy == "CnnPolicy" else spaces.Dict(eye=observed)
        images = short(observation_space=space)
        if policy == "CnnPolicy":
            with pytest.raises(ValueError, match=r"4 images.*use VecFrameStack\(make_vec_env\(...\), n_stack=4\)"):
                PPO(policy, images)


def test_an_environment_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONG", 50)
    endless = short(length=None)
    check_env(endless, skip_render_check=True)
    model = PPO("MlpPolicy", endless, n_steps=8, batch_size=8)

    class Enough(Exception):
        pass

    def stop(locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        if locals_["current_lengths"][0] > 60 if "current_lengths" in locals_ else endless.t > 60:
            raise Enough

    forget()
    with pytest.warns(UserWarning, match="has taken 50 steps.*max_steps_per_episode"), pytest.raises(Enough):
        evaluation.evaluate_policy(model, endless, n_eval_episodes=1, callback=stop, warn=False)
    assert evaluate(model, endless, n_episodes=2, max_steps_per_episode=60).n_capped == 2


def test_masks_as_one_list_for_each_choice() -> None:
    def action_masks(self: Any) -> Any:
        return [[True, False], np.array([False, False, True])]

    env = short(action_masks=action_masks)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0).learn(16)
    assert model.rollout_buffer is not None
    assert model.rollout_buffer.actions.reshape(-1, 2).tolist() == [[0.0, 2.0]] * 8
