"""The border where vectorised environments enter: what their infos say as columns."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from polyak.envs import DummyVecEnv, Monitor, VecEnvWrapper
from polyak.envs.adapters.infos import InfoRows
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.native.gym_vector import GymVectorEnv
from tests.worlds import World


class Counting(World):
    """Observes how many steps the episode has made; ends at ``length``, by truncation if that is negative."""

    action_space = spaces.Discrete(3)

    def __init__(self, length: int, keyed: bool = False) -> None:
        self.number, self.length, self.truncates, self.keyed = length, abs(length), length < 0, keyed
        box = spaces.Box(-100, 100, (2,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": box}) if keyed else box

    def look(self) -> Any:
        row = np.array([self.t, self.number], np.float32)
        return {"a": row, "b": -row} if self.keyed else row

    def act(self, action: Any) -> float:
        return float(self.t)

    def info(self) -> dict[str, Any]:
        return {"is_success": self.over()}


def vector(*lengths: int, kind: type[Counting] = Counting, **options: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda n=n: Monitor(kind(n, **options)) for n in lengths])  # type: ignore[misc]


def acting(env: FromVecEnv, steps: int) -> list[Any]:
    env.reset()
    return [env.step(np.zeros(env.num_envs, np.int64)) for _ in range(steps)]


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
