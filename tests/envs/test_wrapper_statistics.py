"""Running statistics of Gymnasium's wrappers, and of a user's own, with a model: in files, other environments and
evaluations."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from polyak import A2C, PPO
from polyak.callbacks import EvalCallback
from polyak.envs import DummyVecEnv, Monitor, SubprocVecEnv, VecEnv, VecEnvWrapper, make_vec_env
from polyak.envs.native.gym_vector import GymVectorEnv
from polyak.envs.wrapper_statistics import checked, for_envs, found_in, put_into
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.evaluation import evaluate
from polyak.experience import collect
from tests.tolerance import bound
from tests.worlds import World

OBS, REWARD = "NormalizeObservation.obs_rms", "NormalizeReward.return_rms"
MEAN = 1000.0


class Far(World):
    """Numbers around 1000, 10 to an episode, each of which earns itself."""

    observation_space, length, truncates = spaces.Box(-1e5, 1e5, (2,), np.float32), 10, True
    render_mode = None

    def look(self) -> np.ndarray:
        return self.np_random.normal(MEAN, 3.0, 2).astype(np.float32)

    def act(self, action: int) -> float:
        return float(self.t)


def wrapped() -> gym.Env:
    return NormalizeReward(NormalizeObservation(Far()))


def small(env: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"n_steps": 16, "policy_kwargs": {"net_arch": [4]}, "device": "cpu", "seed": 0}
    return A2C("MlpPolicy", env, compile=False, **{**settings, **options})


def same(one: Any, other: Any) -> bool:
    """Whether two lists of statistics are equal, but for whether they are updated."""
    parts = ("mean", "var", "count")
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[key][part], b[key][part]) for key in a for part in parts)
        for a, b in zip(one, other, strict=True)
    )


class Seen(gym.Wrapper):
    """Keeps the observations that it returns."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.seen: list[np.ndarray] = []

    def reset(self, **options: Any) -> Any:
        obs, info = self.env.reset(**options)
        self.seen.append(obs)
        return obs, info

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        self.seen.append(obs)
        return obs, *rest


# -- one environment ---------------------------------------------------------------------------------------------------


class Own(gym.ObservationWrapper):
    """A user's own wrapper, with statistics of numbers that are not arrays."""

    class Welford:
        def __init__(self) -> None:
            self.mean, self.var, self.count = 0.0, 1.0, 0

        def update(self, value: float) -> None:
            self.count += 1
            self.mean += (value - self.mean) / self.count

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.of_sums = self.Welford()

    def observation(self, observation: Any) -> Any:
        self.of_sums.update(float(observation.sum()))
        return observation


def test_statistics_are_found_whatever_they_are_called_and_put_into_equal_wrappers() -> None:
    def make() -> gym.Env:
        return NormalizeObservation(Own(NormalizeObservation(NormalizeReward(Far()))))

    env, other = make(), make()
    env.reset(seed=0)
    for _ in range(8):
        env.step(0)
    found = found_in(env)
    assert list(found) == [OBS, "Own.of_sums", f"{OBS}/2", REWARD]
    assert found[f"{OBS}/2"]["mean"] == pytest.approx(MEAN, abs=9)
    assert abs(found[OBS]["mean"]).max() < 10
    put_into(other, found)
    assert same([found_in(other)], [found])
    assert other.get_wrapper_attr("of_sums").mean == env.get_wrapper_attr("of_sums").mean
    before = env.get_wrapper_attr("return_rms").count
    put_into(other, {REWARD: {**found[REWARD], "count": 7.0, "updates": False}})
    assert env.get_wrapper_attr("return_rms").count == before
    assert not other.env.env.env.update_running_mean  # type: ignore[attr-defined]
    assert other.update_running_mean  # type: ignore[attr-defined]


def test_several_become_those_of_all_samples() -> None:
    samples = np.random.default_rng(0).normal(5.0, 2.0, (3, 40, 2))
    each = []
    for part in samples:
        statistics = RunningMeanStd(0.0, (2,))
        statistics.update(part)
        each.append(
            {"a": {**statistics.state_dict(), "shared": False}, "b": {**statistics.state_dict(), "shared": True}}
        )
    assert for_envs(each, 3) is each
    (first, second) = for_envs(each, 2)
    together = samples.reshape(-1, 2)
    near = bound(len(together), size=25.0)
    for one in (first["a"], second["a"]):
        np.testing.assert_allclose(one["mean"], together.mean(0), rtol=0, atol=near)
        np.testing.assert_allclose(one["var"], together.var(0), rtol=0, atol=near)
        assert one["count"] == 120
    assert first["b"] is each[0]["b"]


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.array([np.nan])},
        {"var": np.array([-1.0])},
        {"var": np.ones(2)},
        {"mean": [0.0]},
        {"count": -1},
        {"count": float("nan")},
        {"count": "1"},
        {"shared": 1},
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any]) -> None:
    sound = {"mean": np.zeros(1), "var": np.ones(1), "count": 3.0, "shared": False}
    assert checked([{OBS: {**sound, "further": 1}}]) == [{OBS: sound}]
    with pytest.raises(ValueError, match="it is damaged"):
        checked([{OBS: {**sound, **change}}])
    for other in ({}, [{"\x1b[31m.a": sound}], [[]], [{OBS: 1}], [{OBS: sound}, {}]):
        with pytest.raises(ValueError, match="it is damaged"):
            checked(other)


# -- a model's environments --------------------------------------------------------------------------------------------


class Shift(VecEnvWrapper):
    """A VecEnvWrapper of a user's own, with statistics of all environments."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.rms = RunningMeanStd(shape=(2,))

    def reset(self) -> Any:
        obs = self.venv.reset()
        self.rms.update(obs)
        return obs

    def step_wait(self) -> Any:
        obs, *rest = self.venv.step_wait()
        self.rms.update(obs)
        return obs, *rest


def gymnasium_vector(n: int) -> GymVectorEnv:
    mode = gym.vector.AutoresetMode.SAME_STEP
    return GymVectorEnv(gym.vector.SyncVectorEnv([wrapped] * n, autoreset_mode=mode))


def whole_vector(n: int) -> GymVectorEnv:
    """Wrapped as a whole, which takes one environment."""
    return GymVectorEnv(gym.wrappers.vector.NormalizeObservation(gym.vector.SyncVectorEnv([Far])))


VECTORS: dict[str, Callable[[int], VecEnv]] = {
    "dummy": partial(make_vec_env, wrapped),
    "subproc": partial(make_vec_env, wrapped, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}),
    "sync": gymnasium_vector,
    "whole": whole_vector,
    "own": lambda n: Shift(make_vec_env(Far, n)),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_a_models_file_gives_them_to_new_wrappers(kind: str, tmp_path: Path) -> None:
    make, n = VECTORS[kind], 1 if kind == "whole" else 2
    model = small(make(n)).learn(64)
    learned = model.get_env().get_statistics()
    assert all(key in learned[0] for key in {"own": ["Shift.rms"], "whole": [OBS]}.get(kind, [OBS, REWARD]))
    assert learned[0][next(reversed(learned[0]))]["count"] > 30
    model.get_env().close()
    model.save(tmp_path / "model")  # closed or not
    loaded = A2C.load(tmp_path / "model", env=make(n), device="cpu")
    assert same(loaded.get_env().get_statistics(), learned)
    loaded.get_env().close()


@pytest.mark.parametrize("kind", ["dummy", "own"])
def test_a_file_that_is_written_again_and_other_numbers_of_environments(kind: str, tmp_path: Path) -> None:
    model = small(VECTORS[kind](2)).learn(64)
    model.save(tmp_path / "model")
    learned = model.get_env().get_statistics()
    A2C.load(tmp_path / "model", device="cpu").save(tmp_path / "again")  # which has no environments
    again = A2C.load(tmp_path / "again", env=VECTORS[kind](2), device="cpu")
    assert same(again.get_env().get_statistics(), learned)
    (one,) = A2C.load(tmp_path / "again", env=VECTORS[kind](1), device="cpu").get_env().get_statistics()
    for key, found in one.items():
        of_all = learned[0][key]["shared"]
        assert found["count"] == (learned[0][key]["count"] if of_all else sum(each[key]["count"] for each in learned))


def test_runners_elsewhere_keep_theirs(tmp_path: Path) -> None:
    model = small(partial(make_vec_env, wrapped, 2), n_runners=2, transport="local").learn(64)
    learned = model.get_env().get_statistics()
    assert [each[OBS]["count"] > 10 for each in learned] == [True] * 4
    model.save(tmp_path / "model")
    loaded = A2C.load(tmp_path / "model", env=partial(make_vec_env, wrapped, 2), n_runners=2, transport="local")
    assert same(loaded.get_env().get_statistics(), learned)
    here = A2C.load(tmp_path / "model", env=make_vec_env(wrapped, 4), n_runners=0, device="cpu")
    assert same(here.get_env().get_statistics(), learned)


def test_set_env_hands_them_on_and_says_what_cannot_be() -> None:
    model = small(wrapped()).learn(32)
    learned = model.get_env().get_statistics()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_env(wrapped())
        assert same(model.get_env().get_statistics(), learned)
        model.set_env(model.get_env())
        model.set_env(NormalizeObservation(Far()))  # rewards as they are
    used = NormalizeObservation(Far())
    used.reset(seed=0)
    before = found_in(used)
    with pytest.warns(UserWarning, match=r"NormalizeObservation.* it has seen data of its own. Pass one with a new"):
        model.set_env(used)
    assert same([found_in(used)], [before])
    with pytest.warns(UserWarning, match=r"it has none. Wrap it as in training, with NormalizeObservation"):
        model.set_env(gym.wrappers.DtypeObservation(plain(Far()), np.float32))


def plain(env: gym.Env) -> gym.Env:
    """Of the spaces of the wrapper."""
    env.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return env


# -- evaluation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_an_evaluation_shows_what_the_model_learned_to_see(kept: bool, tmp_path: Path) -> None:
    model = small(make_vec_env(wrapped, 2)).learn(200)
    learned = model.get_env().get_statistics()
    if kept:
        model.save(tmp_path / "model")
        model = A2C.load(tmp_path / "model", device="cpu")
    env = Seen(NormalizeObservation(Far()))
    new = found_in(env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = evaluate(model, Monitor(env), 30, seed=0)
    seen = np.array(env.seen)
    # numbers of deviation 3 around the mean, by statistics of 400 such
    assert abs(seen.mean()) < 5 / np.sqrt(2 * 200) + 5 / np.sqrt(seen.size)
    assert seen.std() == pytest.approx(1, abs=0.2)
    assert same([found_in(env)], [new])
    assert env.env.update_running_mean  # type: ignore[attr-defined]
    again = evaluate(model, Monitor(env), 30, seed=0)
    assert again.returns.tolist() == first.returns.tolist()
    np.testing.assert_array_equal(np.array(env.seen)[len(seen) :], seen)
    env.seen.clear()
    collect(env, model, 50, seed=0)
    assert abs(np.array(env.seen).mean()) < 1
    assert same([found_in(env)], [new])
    if not kept:
        assert same(model.get_env().get_statistics(), learned)
        evaluate(model, model.get_env(), 2, seed=0)
        assert same(model.get_env().get_statistics(), learned)


def test_evaluations_during_training_follow_its_statistics(tmp_path: Path) -> None:
    env = Seen(NormalizeObservation(Far()))
    small(make_vec_env(wrapped, 2)).learn(320, EvalCallback(Monitor(env), eval_freq=80, n_eval_episodes=4, verbose=0))
    seen = np.array(env.seen)
    assert len(seen) == 2 * (1 + 4 * 11)
    assert abs(seen.mean()) < 1
    assert found_in(env)[OBS]["count"] < 1


def test_evaluations_that_cannot_follow_say_so() -> None:
    model = small(make_vec_env(wrapped, 2)).learn(64)
    used = Monitor(NormalizeObservation(Far()))
    used.reset(seed=0)
    with pytest.warns(
        UserWarning, match="has seen data of its own. The model acts under the statistics that it learned"
    ):
        evaluate(model, used, 1, seed=0)
    with pytest.warns(UserWarning, match="it has none. Wrap it as in training, with NormalizeObservation"):
        evaluate(model, Monitor(Far()), 1, seed=0)


# -- what no file can hold ---------------------------------------------------------------------------------------------


def test_what_other_files_do_not_hold_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = PPO("MlpPolicy", wrapped(), n_steps=16, batch_size=16, device="cpu", compile=False).learn(16)
    with pytest.warns(UserWarning, match="a file of Stable-Baselines3's does not hold its running statistics"):
        model.save_sb3(tmp_path / "model")
    monkeypatch.setattr("polyak.checkpoint.exporting.export", lambda *_: {})  # which takes long
    with pytest.warns(UserWarning, match="an exported graph does not hold its running statistics"):
        model.export(tmp_path / "model.pt2")
    model.save(tmp_path / "ours")
    loaded = PPO.load(tmp_path / "ours", device="cpu")
    with pytest.warns(
        UserWarning, match=r"predict\(\) takes what that returns with the statistics in the model's file"
    ):
        loaded.predict(np.zeros(2, np.float32))


def test_environments_that_do_not_show_their_statistics_are_named(tmp_path: Path) -> None:
    mode = gym.vector.AutoresetMode.SAME_STEP
    env = gym.vector.AsyncVectorEnv([wrapped] * 2, autoreset_mode=mode)
    model = small(env).learn(32)
    with pytest.warns(UserWarning, match=r"cannot be read now \(an AsyncVectorEnv .* in no file"):
        model.save(tmp_path / "model")
    env.close()
    assert (
        A2C.load(tmp_path / "model", env=DummyVecEnv([wrapped]), device="cpu")
        .get_env()
        .get_statistics()[0][OBS]["count"]
        < 1
    )
