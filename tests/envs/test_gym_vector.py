"""GymVectorEnv: the transitions of DummyVecEnv, whatever the vector environment's way of resetting."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.native.gym_vector import GymVectorEnv
from polyak.envs.testing import BitFlippingEnv, IdentityEnv, SimpleMultiObsEnv
from polyak.envs.wrappers.monitor import Monitor
from tests.tolerance import bound

MODES = list(AutoresetMode)


class Talkative(gym.Wrapper):
    """Infos with numbers, arrays, dicts and keys that are not always there."""

    def reset(self, **kwargs):
        self.count = 0
        obs, _ = self.env.reset(**kwargs)
        return obs, {"start": float(np.sum(np.asarray(obs, dtype=float))) if not isinstance(obs, dict) else 1.0}

    def step(self, action):
        self.count += 1
        obs, reward, terminated, truncated, _ = self.env.step(action)
        info = {"count": self.count, "inner": {"twice": 2 * self.count}, "pair": np.array([self.count, 0])}
        if self.count % 2:
            info["odd"] = True
        return obs, reward, terminated, truncated, info


def cartpole():
    return Talkative(gym.make("CartPole-v1", max_episode_steps=18))


KINDS = {
    "cartpole": cartpole,
    "pendulum": lambda: gym.make("Pendulum-v1", max_episode_steps=9),
    "dict": lambda: gym.wrappers.TimeLimit(SimpleMultiObsEnv(), 8),
    "discrete": lambda: IdentityEnv(4, ep_length=6),
    "goals": lambda: BitFlippingEnv(n_bits=4),
}


def run(venv, n_envs, steps=60):
    """Everything that a learner sees."""
    venv.seed(11)
    seen = [venv.reset(), [dict(info) for info in venv.reset_infos]]
    venv.action_space.seed(0)
    for _ in range(steps):
        actions = np.stack([venv.action_space.sample() for _ in range(n_envs)])
        obs, rewards, dones, infos = venv.step(actions)
        for info in infos:
            info.pop("episode", None)
        seen.append((obs, rewards, dones, infos, [dict(info) for info in venv.reset_infos]))
    return seen


@pytest.mark.parametrize(
    ("kind", "mode"), [*(("cartpole", mode) for mode in MODES), *zip(list(KINDS)[1:], [*MODES, MODES[0]], strict=True)]
)
def test_same_transitions_in_all_modes(kind, mode):
    n_envs = 3
    ours = GymVectorEnv(SyncVectorEnv([KINDS[kind]] * n_envs, autoreset_mode=mode))
    expected = run(DummyVecEnv([KINDS[kind]] * n_envs), n_envs)
    got = run(ours, n_envs)
    assert sum(step[2].sum() for step in expected[2:]) >= n_envs
    np.testing.assert_equal(got, expected)
    for _, rewards, dones, infos, _ in got[2:]:
        assert rewards.dtype == np.float32
        assert dones.dtype == bool
        for done, info in zip(dones, infos, strict=True):
            assert ("terminal_observation" in info) == done
            assert isinstance(info["TimeLimit.truncated"], bool)


@pytest.mark.parametrize("mode", MODES)
def test_async_gives_the_same(mode):
    fns = [KINDS["cartpole"]] * 2
    ours = GymVectorEnv(AsyncVectorEnv(fns, autoreset_mode=mode, context="fork"))
    try:
        np.testing.assert_equal(run(ours, 2), run(DummyVecEnv(fns), 2))
        assert ours.has_attr("count")
        assert len(ours.get_attr("count", indices=[1])) == 1
        with pytest.raises(AttributeError, match="nonsense"):
            ours.get_attr("nonsense")
        ours.set_attr("count", 5)
        assert ours.get_attr("count") == [5, 5]
        assert ours.env_is_wrapped(Talkative) == [True, True]
        assert ours.env_method("get_wrapper_attr", "count") == [5, 5]
        with pytest.raises(NotImplementedError, match="all environments together"):
            ours.env_method("get_wrapper_attr", "count", indices=[0])
        assert ours.reset().shape == (2, 4)  # the workers are alive
    finally:
        ours.close()


def test_one_env_needs_no_mask():
    class Bare(SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            assert options is None
            return super().reset(seed=seed)

    ours = GymVectorEnv(Bare([cartpole], autoreset_mode=AutoresetMode.NEXT_STEP), reset_mask=False)
    np.testing.assert_equal(run(ours, 1), run(DummyVecEnv([cartpole]), 1))


@pytest.mark.parametrize("mode", MODES)
def test_episode_statistics(mode):
    ours = GymVectorEnv(SyncVectorEnv([KINDS["pendulum"]] * 3, autoreset_mode=mode))
    monitored = DummyVecEnv([lambda: Monitor(KINDS["pendulum"]())] * 3)
    episodes = []
    for venv in (ours, monitored):
        venv.seed(3)
        venv.reset()
        found = []
        for step in range(40):
            infos = venv.step(np.full((3, 1), np.sin(step), np.float32))[3]
            found += [(step, place, info["episode"]) for place, info in enumerate(infos) if "episode" in info]
        episodes.append(found)
    mine, theirs = episodes
    assert len(mine) == 12
    for (step, place, episode), (step2, place2, episode2) in zip(mine, theirs, strict=True):
        assert (step, place) == (step2, place2)
        assert episode["l"] == episode2["l"] == 9
        assert episode["r"] == pytest.approx(episode2["r"], rel=bound(9))  # nine rewards, in float32
        assert episode["t"] >= 0
        assert [type(episode[key]) for key in "rlt"] == [float, int, float]
    assert ours.env_is_wrapped(Monitor) == [True] * 3
    without = GymVectorEnv(SyncVectorEnv([KINDS["pendulum"]] * 3), episode_statistics=False)
    without.reset()
    assert not any("episode" in info for _ in range(10) for info in without.step(np.zeros((3, 1), np.float32))[3])
    assert without.env_is_wrapped(Monitor) == [False] * 3


def test_reset_in_the_middle_restarts_the_statistics():
    ours = GymVectorEnv(SyncVectorEnv([KINDS["pendulum"]] * 2))
    ours.reset()
    for _ in range(5):
        ours.step(np.zeros((2, 1), np.float32))
    ours.reset()
    lengths = [info["episode"]["l"] for _ in range(9) for info in ours.step(np.zeros((2, 1), np.float32))[3]
               if "episode" in info]  # fmt: skip
    assert lengths == [9, 9]


# --- vector environments that cannot be adapted ---


def test_next_step_without_mask_is_refused():
    with pytest.raises(ValueError, match=r"(?s)NEXT_STEP.*reset_mask.*Fix: make it with.*SAME_STEP"):
        GymVectorEnv(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"))
    without_memory = AsyncVectorEnv([cartpole] * 2, shared_memory=False, context="fork")
    with pytest.raises(ValueError, match="NEXT_STEP"):
        GymVectorEnv(without_memory)
    without_memory.close()


def test_an_ignored_mask_is_noticed():
    native = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    venv = GymVectorEnv(native, reset_mask=True)
    venv.seed(0)
    venv.reset()
    with pytest.raises(RuntimeError, match="it ignores the mask"):
        for _ in range(100):
            venv.step(np.array([0, 1, 0]))


def test_unknown_modes():
    silent = SyncVectorEnv([cartpole] * 2)
    del silent.metadata["autoreset_mode"]
    with pytest.raises(ValueError, match="does not say how it resets"):
        GymVectorEnv(silent)
    assert GymVectorEnv(silent, autoreset_mode="NextStep").autoreset_mode == "NextStep"
    with pytest.raises(ValueError, match="autoreset_mode must be .*, got 'sometimes'"):
        GymVectorEnv(silent, autoreset_mode="sometimes")
    with pytest.raises(TypeError, match="wraps a gymnasium.vector.VectorEnv, got CartPoleEnv"):
        GymVectorEnv(gym.make("CartPole-v1").unwrapped)


def test_same_step_without_final_obs_is_an_error():
    class Forgets(SyncVectorEnv):
        def step(self, actions):
            *rest, infos = super().step(actions)
            infos.pop("final_obs", None)
            return (*rest, infos)

    venv = GymVectorEnv(Forgets([KINDS["goals"]] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    venv.reset()
    with pytest.raises(RuntimeError, match="final_obs"):
        for _ in range(5):
            venv.step(np.zeros(2, np.int64))


# --- the rest of the contract ---


def test_native_vector_env_where_all_end_together():
    class Native(gym.vector.VectorEnv):
        """Counts to 4; does not know masks, resets by itself at once."""

        num_envs = 2
        single_observation_space = gym.spaces.Box(0, 10, (1,))
        single_action_space = gym.spaces.Discrete(2)
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        gravity = 9.8

        def reset(self, *, seed=None, options=None):
            self.count = 0
            return np.zeros((2, 1), np.float32), {"level": np.array([1, 2])}

        def step(self, actions):
            self.count += 1
            obs, end, infos = np.full((2, 1), self.count, np.float32), self.count == 4, {}
            if end:
                infos["final_obs"] = obs
                obs, infos["level"] = np.zeros_like(obs), np.array([3, 4])
                self.count = 0
            return obs, np.ones(2), np.full(2, end), np.zeros(2, bool), infos

    venv = GymVectorEnv(Native())
    np.testing.assert_array_equal(venv.reset(), np.zeros((2, 1)))
    assert [info["level"] for info in venv.reset_infos] == [1, 2]
    for _ in range(3):
        venv.step(np.zeros(2))
    obs, _, dones, infos = venv.step(np.zeros(2))
    np.testing.assert_array_equal(obs, np.zeros((2, 1)))
    assert dones.all()
    assert [info["terminal_observation"].tolist() for info in infos] == [[4.0], [4.0]]
    assert [info["level"] for info in venv.reset_infos] == [3, 4]
    assert infos[0]["episode"]["r"] == 4.0
    assert venv.get_attr("gravity") == [9.8, 9.8]
    venv.set_attr("gravity", 1.0)
    assert venv.env.gravity == 1.0
    assert not venv.has_attr("nonsense")
    with pytest.raises(NotImplementedError, match="steps all environments as one"):
        venv.env_method("step", 1)


def test_attributes_of_a_sync_vector_env():
    venv = GymVectorEnv(SyncVectorEnv([partial(BitFlippingEnv, n_bits=4, max_steps=steps) for steps in (2, 3, 4)]))
    assert venv.get_attr("max_steps") == [2, 3, 4]
    venv.set_attr("max_steps", 9, indices=[1])
    assert venv.get_attr("max_steps", indices=[0, 1]) == [2, 9]
    assert venv.env_method("convert_if_needed", np.ones(4), indices=2)[0].tolist() == [1, 1, 1, 1]
    assert venv.has_attr("n_bits")
    assert not venv.has_attr("nonsense")
    assert venv.env_is_wrapped(gym.wrappers.TimeLimit) == [False] * 3
    assert venv.render_mode == "human"


def test_results_are_not_changed_by_later_steps():
    venv = GymVectorEnv(SyncVectorEnv([cartpole] * 3, copy=False, autoreset_mode=AutoresetMode.DISABLED))
    first = venv.reset()
    kept = first.copy()
    steps = []
    for _ in range(40):
        obs, _, _, infos = venv.step(np.array([0, 1, 0]))
        finals = [info["terminal_observation"] for info in infos if "terminal_observation" in info]
        steps.append(((obs, finals), (obs.copy(), [final.copy() for final in finals])))
    np.testing.assert_array_equal(first, kept)
    for seen, copy in steps:
        np.testing.assert_equal(seen, copy)


def test_options_and_images():
    venv = GymVectorEnv(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
    venv.seed(0)
    venv.set_options({"low": -0.001, "high": 0.001})
    assert np.abs(venv.reset()).max() <= 0.001
    assert np.abs(venv.reset()).max() > 0.001
    venv.set_options([{"low": -0.001}, {}])
    with pytest.raises(ValueError, match="takes one dict for all"):
        venv.reset()
    with pytest.raises(RuntimeError, match="without step_async"):
        GymVectorEnv(SyncVectorEnv([cartpole])).step_wait()


def test_images():
    pytest.importorskip("pygame")
    make = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    venv = GymVectorEnv(SyncVectorEnv([make, make]))
    venv.reset()
    assert [image.shape for image in venv.get_images()] == [(400, 600, 3)] * 2
    assert venv.render().shape[2] == 3


def test_native_atari():
    pytest.importorskip("ale_py")
    from ale_py.vector_env import AtariVectorEnv

    for mode in ("NextStep", "SameStep"):
        venv = GymVectorEnv(AtariVectorEnv("breakout", num_envs=2, autoreset_mode=mode, max_num_frames_per_episode=90))
        venv.seed(0)
        venv.reset()
        lengths = []
        for _ in range(60):
            obs, _, dones, infos = venv.step(np.array([1, 2]))
            for place in np.flatnonzero(dones):
                assert not np.array_equal(infos[place]["terminal_observation"], obs[place])
                lengths.append(infos[place]["episode"]["l"])
        assert len(lengths) >= 2
        assert min(lengths) > 5
        venv.close()
