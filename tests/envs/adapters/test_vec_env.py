"""The border where vectorised environments enter: what their infos say as columns."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from polyak.envs import DummyVecEnv, Monitor, VecEnvWrapper, VecNormalize
from polyak.envs.adapters.infos import InfoRows
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import find_masks
from polyak.envs.nan_checks import NonFiniteError
from polyak.envs.native.gym_vector import GymVectorEnv


class Counting(gym.Env):
    """Observes how many steps the episode has made; ends at ``length``, by truncation if that is negative."""

    action_space = spaces.Discrete(3)

    def __init__(self, length: int, keyed: bool = False) -> None:
        self.length, self.keyed = length, keyed
        box = spaces.Box(-100, 100, (2,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": box}) if keyed else box

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t == abs(self.length)
        return self._seen(), float(self.t), over and self.length > 0, over and self.length < 0, {"is_success": over}

    def _seen(self) -> Any:
        row = np.array([self.t, self.length], np.float32)
        return {"a": row, "b": -row} if self.keyed else row


class Masked(Counting):
    """Allows the choice of the same number as the step, and another."""

    def action_masks(self) -> np.ndarray:
        return np.arange(3) >= min(self.t, 2)


def vector(*lengths: int, kind: type[Counting] = Counting, **options: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda n=n: Monitor(kind(n, **options)) for n in lengths])  # type: ignore[misc]


def acting(env: FromVecEnv, steps: int) -> list[Any]:
    env.reset()
    return [env.step(np.zeros(env.num_envs, np.int64)) for _ in range(steps)]


@pytest.mark.parametrize("keyed", [False, True])
def test_successors_are_true_and_termination_is_distinguished_from_truncation(keyed: bool) -> None:
    steps = acting(FromVecEnv(vector(2, -3, keyed=keyed)), 3)
    first = [step.successors["a"] if keyed else step.successors for step in steps]
    then = [step.observations["a"] if keyed else step.observations for step in steps]
    assert [rows[:, 0].tolist() for rows in first] == [[1, 1], [2, 2], [1, 3]]
    assert [rows[:, 0].tolist() for rows in then] == [[1, 1], [0, 2], [1, 0]]
    assert [step.terminated.tolist() for step in steps] == [[False, False], [True, False], [False, False]]
    assert [step.truncated.tolist() for step in steps] == [[False, False], [False, False], [False, True]]
    assert [step.dones.tolist() for step in steps] == [[False, False], [True, False], [False, True]]
    assert [step.ended for step in steps] == [False, True, True]
    assert [step.stored for step in steps] == [None] * 3


def test_statistics_of_ended_episodes_are_columns() -> None:
    steps = acting(FromVecEnv(vector(2, -3)), 3)
    assert steps[0].episodes == {}
    np.testing.assert_array_equal(steps[1].episodes["returns"], [3.0, 0.0])
    np.testing.assert_array_equal(steps[1].episodes["success"], [1.0, np.nan])
    assert steps[2].episodes["lengths"].tolist() == [0, 3]
    assert [info["is_success"] for info in steps[1].infos] == [True, False]


def test_statistics_are_found_where_a_wrapper_begins_another_episode_by_itself() -> None:
    class Again(gym.Wrapper):
        def step(self, action: Any) -> Any:
            seen, reward, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                seen = self.env.reset()[0]
            return seen, reward, False, False, info

    env = FromVecEnv(DummyVecEnv([lambda: Again(Monitor(Counting(2)))]))
    _, second = acting(env, 2)
    assert not second.ended
    assert second.episodes["lengths"].tolist() == [2]
    assert "success" not in second.episodes


class NoEnd(VecEnvWrapper):
    """Leaves out with which observation an episode ended."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            info.pop("terminal_observation", None)
        return observations, rewards, dones, infos


def test_an_episode_whose_last_observation_is_unknown_counts_as_terminated() -> None:
    step = acting(FromVecEnv(NoEnd(vector(-1))), 1)[0]
    assert step.terminated.tolist() == [True]
    assert step.truncated.tolist() == [False]


@pytest.mark.parametrize("keyed", [False, True])
def test_raw_experience_is_as_it_was_before_normalisation(keyed: bool) -> None:
    inner = vector(2, -3, keyed=keyed)
    env = FromVecEnv(VecNormalize(inner, norm_obs_keys=["a", "b"] if keyed else None), raw=True)
    shown, _, stored = env.reset()
    steps = [env.step(np.zeros(2, np.int64)) for _ in range(3)]
    part = (lambda rows: rows["a"]) if keyed else (lambda rows: rows)
    assert part(stored)[:, 1].tolist() == [2, -3]
    assert part(shown)[:, 1].tolist() != [2, -3]
    assert [part(step.successors)[:, 0].tolist() for step in steps] == [[1, 1], [2, 2], [1, 3]]
    assert [part(step.stored)[:, 0].tolist() for step in steps] == [[1, 1], [0, 2], [1, 0]]
    assert [step.rewards.tolist() for step in steps] == [[1, 1], [2, 2], [1, 3]]
    assert steps[1].infos[0]["terminal_observation"] is not None
    plain = FromVecEnv(VecNormalize(vector(2, -3)))
    assert plain.reset().stored is None
    assert plain.step(np.zeros(2, np.int64)).rewards.tolist() != [1, 1]


def test_masks_are_of_what_to_act_on_and_of_the_true_successors() -> None:
    inner = vector(2, -3, kind=Masked)
    env = FromVecEnv(inner, masks=find_masks(inner))
    assert env.masked
    assert env.reset().masks.tolist() == [[True] * 3] * 2
    later, last = [False, True, True], [False, False, True]
    steps = [env.step(np.zeros(2, np.int64)) for _ in range(2)]
    assert steps[0].masks.tolist() == steps[0].extras["next_masks"].tolist() == [later, later]
    assert steps[1].masks.tolist() == [[True] * 3, last]
    assert steps[1].extras["next_masks"].tolist() == [last, last]


def test_environments_that_show_no_masks_have_none() -> None:
    env = FromVecEnv(vector(2))
    assert not env.masked
    assert env.reset().masks is None
    step = env.step(np.zeros(1, np.int64))
    assert step.masks is None
    assert step.extras == {}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("keyed", [False, True])
def test_vectors_of_gymnasium_lead_to_the_same_columns_in_all_modes(mode: AutoresetMode, keyed: bool) -> None:
    makers = [lambda n=n: Counting(n, keyed) for n in (2, -3, 5)]
    ours = FromVecEnv(GymVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode)))
    theirs = FromVecEnv(DummyVecEnv([lambda make=make: Monitor(make()) for make in makers]))
    part = (lambda rows: rows["a"]) if keyed else (lambda rows: rows)
    ends = 0
    for mine, other in zip(acting(ours, 12), acting(theirs, 12), strict=True):
        np.testing.assert_array_equal(part(mine.successors), part(other.successors))
        np.testing.assert_array_equal(part(mine.observations), part(other.observations))
        for name in ("rewards", "terminated", "truncated", "dones", "ended"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(other, name))
        assert mine.episodes.keys() == other.episodes.keys()
        for name in mine.episodes.keys() - {"seconds"}:
            np.testing.assert_array_equal(mine.episodes[name], other.episodes[name])
        ends += int(mine.dones.sum())
        assert isinstance(mine.infos, InfoRows)
        assert [info["TimeLimit.truncated"] for info in mine.infos] == mine.truncated.tolist()
        assert [info["is_success"] for info in mine.infos] == mine.dones.tolist()
    assert ends == 6 + 4 + 2


def test_a_step_of_its_own_is_asked_of_a_subclass() -> None:
    class Halved(GymVectorEnv):
        def step_wait(self) -> Any:
            observations, rewards, dones, infos = super().step_wait()
            return observations, rewards / 2, dones, infos

    step = acting(FromVecEnv(Halved(SyncVectorEnv([lambda: Counting(9)]))), 2)[1]
    assert step.rewards.tolist() == [1.0]


def test_resets_by_others_are_counted() -> None:
    inner = vector(2)
    env = FromVecEnv(VecNormalize(inner))
    env.reset()
    seen = env.resets
    inner.reset()
    assert env.resets == seen + 1


def test_states_go_through() -> None:
    env = FromVecEnv(vector(2, -3))
    acting(env, 1)
    state = env.get_state()
    ahead = env.step(np.zeros(2, np.int64))
    env.set_state(state)
    np.testing.assert_array_equal(env.step(np.zeros(2, np.int64)).successors, ahead.successors)


def test_infinity_is_found_though_normalisation_clips_it() -> None:
    class Broken(Counting):
        def step(self, action: Any) -> Any:
            seen, _, *rest = super().step(action)
            return seen, np.inf if self.t == 2 else 1.0, *rest

    env = FromVecEnv(VecNormalize(vector(5, kind=Broken)))
    env.reset()
    env.step(np.zeros(1, np.int64))
    with pytest.raises(NonFiniteError, match="reward of environment 0 in step 2 is inf"):
        env.step(np.zeros(1, np.int64))
