"""make_native_vec_env: the VecEnv contract on vector environments that step as one."""

import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from polyak.envs import AtariGameVecEnv, GymVectorEnv, Monitor, make_native_vec_env
from polyak.envs.native.envpool import EnvPoolVectorEnv
from polyak.envs.vec.seeds import seeds_of
from tests.tolerance import bound

# --- CartPole -------------------------------------------------------------------------------------------------------


def test_cartpole_steps_as_the_single_environment_does():
    venv = make_native_vec_env("CartPole-v1", 3, seed=7)
    single = CartPoleEnv()
    single.reset()
    rng = np.random.default_rng(0)
    obs, ended = venv.reset(), 0
    lengths, returns = np.zeros(3, int), np.zeros(3)
    for _ in range(200):
        before = venv.env.state.copy()
        actions = rng.integers(0, 2, 3)
        obs, rewards, dones, infos = venv.step(actions)
        lengths += 1
        returns += rewards
        for index in range(3):
            single.state, single.steps_beyond_terminated = before[:, index], None
            expected, reward, terminated, _, _ = single.step(int(actions[index]))
            assert (rewards[index], dones[index]) == (reward, terminated)
            last = infos[index]["terminal_observation"] if terminated else obs[index]
            # the physics in float64, its result rounded once
            np.testing.assert_allclose(last, expected, rtol=bound(2), atol=bound(100, size=5, dtype=np.float64))
            if terminated:
                ended += 1
                assert np.abs(obs[index]).max() <= 0.05  # a first observation
                assert infos[index]["TimeLimit.truncated"] is False
                episode = infos[index]["episode"]
                assert (episode["r"], episode["l"]) == (returns[index], lengths[index])
                lengths[index] = returns[index] = 0
            else:
                assert infos[index] == {"TimeLimit.truncated": False}
    assert ended > 10
    assert venv.env_is_wrapped(Monitor) == [True] * 3


def test_cartpole_is_cut_off_at_its_limit():
    venv = make_native_vec_env("CartPole-v1", 2, seed=0, env_kwargs={"max_episode_steps": 5})
    venv.reset()
    for step in range(1, 11):
        *_, dones, infos = venv.step(np.array([step % 2, step % 2]))
        assert dones.tolist() == [step % 5 == 0] * 2
        assert [info["TimeLimit.truncated"] for info in infos] == [step % 5 == 0] * 2
    assert venv.env.spec.id == "CartPole-v1"
    venv = make_native_vec_env("CartPole-v0", 1)
    assert venv.env.max_episode_steps == 200


def test_cartpole_results_are_not_changed_by_later_steps():
    venv = make_native_vec_env("CartPole-v1", 4, seed=0)
    results, copies = [], []
    venv.reset()
    for step in range(60):
        results.append(venv.step(np.full(4, step % 3 == 0, dtype=np.int64)))
        copies.append([part.copy() for part in results[-1][:3]])
    for result, copy in zip(results, copies, strict=True):
        for part, kept in zip(result[:3], copy, strict=True):
            np.testing.assert_array_equal(part, kept)


def test_seeds_repeat():
    first, second = (make_native_vec_env("CartPole-v1", 3, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.reset(), second.reset())
    first.seed(5)
    second.seed(5)
    np.testing.assert_array_equal(first.reset(), second.reset())
    assert not np.array_equal(first.reset(), make_native_vec_env("CartPole-v1", 3, seed=6).reset())


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("CartPole-v1", 0), {}, "n_envs must be at least 1, got 0"),
        (("CartPole-v1", 2), {"backend": "magic"}, "backend must be None, 'gymnasium', 'ale', 'envpool', got 'magic'"),
        (("CartPole-v1", 2), {"backend": "ale"}, "CartPole-v1 is not of backend 'ale': use backend='gymnasium'"),
        (("Pendulum-v1", 2), {}, "Pendulum-v1 has no vector environment of its own"),
        (("CartPool-v1", 2), {}, "Did you mean"),
    ],
)
def test_what_cannot_be_made(args, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_native_vec_env(*args, **kwargs)


# --- Atari ----------------------------------------------------------------------------------------------------------

ALWAYS_FIRE = np.array([1, 1, 1])


def breakout(n_envs=3, **env_kwargs) -> AtariGameVecEnv:
    pytest.importorskip("ale_py.vector_env")
    venv = make_native_vec_env("ALE/Breakout-v5", n_envs, seed=3, env_kwargs={"num_threads": 1, **env_kwargs})
    assert isinstance(venv, AtariGameVecEnv)
    return venv


def test_breakout_lives_and_games():
    venv = breakout(repeat_action_probability=0.0)
    assert venv.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    before = venv.reset()
    lives = [info["lives"] for info in venv.reset_infos]
    points, lost, games, rng = np.zeros(3), 0, 0, np.random.default_rng(0)
    venv.clip_reward = False
    for _ in range(500):
        obs, rewards, dones, infos = venv.step(rng.integers(0, 4, 3))
        points += rewards
        for index, info in enumerate(infos):
            assert info["TimeLimit.truncated"] is False
            if not dones[index]:
                assert info["lives"] == lives[index]
                np.testing.assert_array_equal(obs[index, :3], before[index, 1:])
                continue
            end = info["terminal_observation"]
            np.testing.assert_array_equal(end[:3], before[index, 1:])  # the frames before it, so it is the real one
            if "episode" in info:
                games += 1
                assert lives[index] == 1
                assert not obs[index, :3].any()
                assert obs[index, 3].any()
                assert info["episode"]["r"] == points[index]
                assert venv.reset_infos[index]["lives"] == 5
                points[index] = 0
            else:
                lost += 1
                assert info["lives"] == lives[index] - 1 > 0
                np.testing.assert_array_equal(end, obs[index])
            lives[index] = venv.reset_infos[index]["lives"]
        before = obs
    assert games >= 3
    assert lost >= 4 * games


def test_breakout_length_counts_the_frames_of_a_game():
    venv = breakout(n_envs=1, terminal_on_life_loss=False)
    venv.reset()
    last, ended = venv.reset_infos[0]["episode_frame_number"], 0
    while ended < 2:
        *_, dones, infos = venv.step(np.array([1]))
        if dones[0]:
            ended += 1
            assert last < infos[0]["episode"]["l"] <= last + 4
            last = venv.reset_infos[0]["episode_frame_number"]
        else:
            last = infos[0]["episode_frame_number"]


def test_breakout_images_and_rewards_are_those_of_the_wrappers():
    from polyak.envs.wrappers.atari import MaxAndSkipEnv, WarpFrame

    venv = breakout(
        n_envs=1, noop_max=0, use_fire_reset=False, repeat_action_probability=0.0, terminal_on_life_loss=False
    )
    single = WarpFrame(MaxAndSkipEnv(gym.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)))
    frames = [single.reset(seed=0)[0]]
    np.testing.assert_array_equal(venv.reset()[0, 3], frames[0][..., 0])
    rng, total = np.random.default_rng(1), 0.0
    for _ in range(150):
        action = int(rng.integers(4))
        obs, rewards, dones, _ = venv.step(np.array([action]))
        image, reward, terminated, _, _ = single.step(action)
        assert rewards[0] == np.sign(reward)
        total += rewards[0]
        if terminated:
            break
        assert not dones[0]
        frames.append(image)
        np.testing.assert_array_equal(obs[0, 3], image[..., 0])
    assert total > 0
    assert len(frames) > 50


def test_rewards_are_signs_but_the_episode_has_points():
    venv = breakout(n_envs=1)
    venv.env.step = lambda actions: (  # a brick of the upper rows, and the end of the game
        np.zeros((1, 4, 84, 84), np.uint8),
        np.array([7], np.int32),
        np.array([True]),
        np.array([False]),
        {
            "final_obs": np.ones((1, 4, 84, 84), np.uint8),
            "lives": np.array([5]),
            "frame_number": np.array([1000]),
            "episode_frame_number": np.array([10]),
        },
    )
    venv.reset()
    _, rewards, _, infos = venv.step(np.array([0]))
    assert rewards.tolist() == [1.0]
    assert infos[0]["episode"]["r"] == 7.0
    assert infos[0]["terminal_observation"].min() == 1


def test_atari_options():
    for name in ("reward_clipping", "episodic_life", "autoreset_mode"):
        with pytest.raises(ValueError, match=f"env_kwargs cannot set {name}"):
            breakout(**{name: True})
    venv = breakout(n_envs=2, terminal_on_life_loss=False, clip_reward=False, img_height=42, img_width=40, stack_num=2)
    assert venv.reset().shape == (2, 2, 42, 40)
    assert not venv.clip_reward
    venv.close()


def test_making_one_leaves_other_vector_environments_as_they_are():
    before = dict(gym.vector.VectorEnv.metadata)
    breakout().close()
    assert gym.vector.VectorEnv.metadata == before


# --- EnvPool --------------------------------------------------------------------------------------------------------


class FakePool:
    """EnvPool's interface: counters that end at 3, 4, 5, ...; the step after an end is the reset."""

    made = []

    def __init__(self, num_envs, env_seed):
        self.num_envs, self.seeds = num_envs, list(env_seed)
        self.observation_space = spaces.Box(-1, 100, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.count = np.zeros(num_envs, np.float32)
        self.ended = np.zeros(num_envs, bool)
        FakePool.made.append(self)

    def _obs(self, chosen):
        return np.stack([self.count[chosen], np.float32(self.seeds)[chosen]], axis=1)

    def _info(self, chosen):
        return {"env_id": chosen, "players": {"env_id": chosen}, "ram": np.zeros((len(chosen), 2)),
                "elapsed_step": self.count[chosen].astype(np.int32)}  # fmt: skip

    def reset(self, chosen=None):
        chosen = np.arange(self.num_envs) if chosen is None else np.asarray(chosen)
        self.count[chosen], self.ended[chosen] = 0, False
        return self._obs(chosen), self._info(chosen)

    def step(self, actions):
        assert actions.dtype == self.action_space.dtype
        assert not self.ended.any(), "an environment that ended was not reset"
        self.count += 1
        everyone = np.arange(self.num_envs)
        cut = self.count >= 3 + everyone
        self.ended |= cut
        return self._obs(everyone), self.count.copy(), np.zeros(self.num_envs, bool), cut, self._info(everyone)

    def close(self):
        self.count = None


@pytest.fixture
def fake_envpool(monkeypatch):
    module = types.ModuleType("envpool")
    module.list_all_envs = lambda: ["Counter-v0"]
    module.make_gymnasium = lambda env_id, num_envs, env_seed, **config: FakePool(num_envs, env_seed, **config)
    monkeypatch.setitem(sys.modules, "envpool", module)
    monkeypatch.setattr(FakePool, "made", [])


@pytest.mark.usefixtures("fake_envpool")
def test_envpool_resets_what_ended_at_once():
    venv = make_native_vec_env("Counter-v0", 3, seed=40, backend="envpool")
    np.testing.assert_array_equal(venv.reset(), np.float32([[0, seed] for seed in seeds_of(40, 3)]))
    assert venv.reset_infos == [{"elapsed_step": 0}] * 3
    for _ in range(2):
        venv.step(np.zeros(3, np.int32))
    obs, rewards, dones, infos = venv.step(np.zeros(3, np.int32))
    np.testing.assert_array_equal(obs[:, 0], [0, 3, 3])
    assert rewards.tolist() == [3, 3, 3]
    assert dones.tolist() == [True, False, False]
    np.testing.assert_array_equal(infos[0]["terminal_observation"], [3, 40])
    assert infos[0]["TimeLimit.truncated"] is True
    assert (infos[0]["episode"]["r"], infos[0]["episode"]["l"]) == (6.0, 3)
    assert infos[0]["elapsed_step"] == 3
    assert venv.reset_infos[0] == {"elapsed_step": 0}
    assert infos[1] == {"elapsed_step": 3, "TimeLimit.truncated": False}
    obs, _, dones, infos = venv.step(np.zeros(3, np.int64))
    np.testing.assert_array_equal(obs[:, 0], [1, 0, 4])
    assert dones.tolist() == [False, True, False]


@pytest.mark.usefixtures("fake_envpool")
def test_envpool_is_seeded_by_reset():
    venv = make_native_vec_env("Counter-v0", 2, seed=5, backend="envpool")
    venv.reset()
    assert FakePool.made[-1].seeds == seeds_of(5, 2)
    count = len(FakePool.made)
    venv.reset()
    assert len(FakePool.made) == count  # continues
    venv.seed(2**32 - 2)  # of a type that EnvPool does not take
    venv.reset()
    assert all(0 <= seed < 2**31 for seed in FakePool.made[-1].seeds)


@pytest.mark.usefixtures("fake_envpool")
def test_envpool_says_what_it_does_not_know():
    with pytest.raises(ValueError, match="EnvPool has no environment 'Pong'"):
        make_native_vec_env("Pong", 2, backend="envpool")
    with pytest.raises(ValueError, match=r"does not take \{'colour': 3\}"):
        make_native_vec_env("Counter-v0", 2, backend="envpool", env_kwargs={"colour": 3})
    with pytest.raises(ValueError, match="batch_size must be num_envs"):
        EnvPoolVectorEnv("Counter-v0", 2, batch_size=1)


def test_without_envpool(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[envpool\]'"):
        make_native_vec_env("CartPole-v1", 2, backend="envpool")


def test_real_envpool():
    pytest.importorskip("envpool")
    first, second = (make_native_vec_env("CartPole-v1", 4, seed=3, backend="envpool") for _ in range(2))
    assert isinstance(first, GymVectorEnv)
    np.testing.assert_array_equal(first.reset(), second.reset())
    ended, rng = 0, np.random.default_rng(0)
    for _ in range(200):
        obs, rewards, dones, infos = first.step(rng.integers(0, 2, 4))
        assert (rewards == 1).all()  # no step is spent on a reset
        for index in np.flatnonzero(dones):
            ended += 1
            assert infos[index]["episode"]["l"] == infos[index]["episode"]["r"]
            assert np.abs(obs[index]).max() <= 0.05
    assert ended > 10
