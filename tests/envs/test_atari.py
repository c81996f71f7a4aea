"""Atari wrappers, on a scripted game (what they do) and on a real one (that they fit together)."""

import copy
import sys

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs.wrappers.atari import (
    AtariWrapper,
    ClipRewardEnv,
    EpisodicLifeEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
    StickyActionEnv,
    WarpFrame,
)
from tests.envs.test_make import layers


class Game(gym.Env):
    """Frame number as pixels; records its actions; always writes to the same array."""

    observation_space = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, end=1000, meanings=("NOOP", "FIRE", "RIGHT", "LEFT"), truncates=False):
        self.end, self.meanings, self.truncates = end, list(meanings), truncates
        self.lives_left, self.log, self.seeds = 3, [], []
        self.frame = np.zeros((40, 40, 3), np.uint8)
        self.ale = self

    def lives(self):
        return self.lives_left

    def get_action_meanings(self):
        return self.meanings

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.seeds.append(seed)
        self.log.append("reset")
        self.frame[:] = 0
        return self.frame, {"resets": len(self.seeds)}

    def step(self, action):
        self.time += 1
        self.log.append(int(action))
        self.frame[:] = self.time % 256
        over = self.time >= self.end
        return self.frame, 1.0, over and not self.truncates, over and self.truncates, {"time": self.time}


def test_sticky_actions_repeat_the_executed_action():
    game = Game()
    env = StickyActionEnv(game, 0.5)
    env.reset(seed=0)
    chosen = [1 + step % 3 for step in range(900)]
    for action in chosen:
        env.step(action)
    executed = game.log[1:]
    previous = [0, *executed[:-1]]
    assert all(did in (wanted, before) for did, wanted, before in zip(executed, chosen, previous, strict=True))
    repeated = np.mean([did != wanted for did, wanted in zip(executed, chosen, strict=True)])
    # A repeat is seen unless the executed action happens to be the chosen one.
    assert 0.40 < repeated < 0.50
    for probability, expected in ((0.0, [1, 2, 3]), (1.0, [0, 0, 0])):
        game = Game()
        env = StickyActionEnv(game, probability)
        env.reset()
        for action in (1, 2, 3):
            env.step(action)
        assert game.log[1:] == expected
    with pytest.raises(ValueError, match=r"action_repeat_probability must lie in \[0, 1\], got 1.5"):
        StickyActionEnv(Game(), 1.5)


def test_sticky_action_is_forgotten_at_reset():
    game = Game()
    env = StickyActionEnv(game, 0.0)
    env.reset()
    env.step(3)
    env.action_repeat_probability = 1.0
    env.reset()
    env.step(2)
    assert game.log == ["reset", 3, "reset", 0]


def test_noops():
    game = Game()
    env = NoopResetEnv(game, noop_max=5)
    counts = set()
    env.reset(seed=1)
    for _ in range(100):
        game.log.clear()
        obs, info = env.reset()
        counts.add(len(game.log) - 1)
        assert set(game.log[1:]) == {0}
        assert obs.max() == info["time"] == len(game.log) - 1
    assert counts == {1, 2, 3, 4, 5}
    env.override_num_noops = 3
    game.log.clear()
    env.reset()
    assert game.log == ["reset", 0, 0, 0]
    with pytest.raises(ValueError, match="noop_max must be at least 1, got 0"):
        NoopResetEnv(Game(), 0)
    with pytest.raises(ValueError, match="action 0 to be NOOP"):
        NoopResetEnv(Game(meanings=["FIRE", "NOOP"]))


def test_noops_past_the_end_of_an_episode_start_another():
    game = Game(end=3)
    env = NoopResetEnv(game)
    env.override_num_noops = 5
    obs, _ = env.reset(seed=3)
    assert game.log == ["reset", 0, 0, 0, "reset", 0, 0]
    assert game.seeds == [3, None]  # the same seed would give the same short episode
    assert obs.max() == 2


def test_fire():
    game = Game()
    obs, info = FireResetEnv(game).reset(seed=3)
    assert game.log == ["reset", 1, 2]
    assert obs.max() == info["time"] == 2
    game = Game(end=1)
    obs, info = FireResetEnv(game).reset(seed=3)
    assert game.log == ["reset", 1, "reset", 2, "reset"]
    assert obs.max() == 0
    for meanings in (["NOOP", "FIRE"], ["NOOP", "RIGHT", "FIRE"]):
        with pytest.raises(ValueError, match="FireResetEnv needs"):
            FireResetEnv(Game(meanings=meanings))


def test_lives():
    game = Game()
    env = EpisodicLifeEnv(game)
    env.reset()
    assert env.step(2)[2:4] == (False, False)
    game.lives_left = 2
    assert env.step(2)[2:4] == (True, False)
    assert not env.was_real_done
    env.reset()
    assert game.log == ["reset", 2, 2, 0]  # continues with a no-op
    assert env.lives == 2
    game.lives_left = 0  # some games show 0 lives before they are over
    assert env.step(2)[2:4] == (False, False)
    game.end = 5
    assert env.step(2)[2:4] == (True, False)
    assert env.was_real_done
    env.reset()
    assert game.log[-1] == "reset"


def test_life_lost_just_before_the_end():
    game = Game(end=3, truncates=True)
    env = EpisodicLifeEnv(game)
    env.reset()
    game.lives_left = 2
    env.step(1)
    env.step(1)
    assert env.step(1)[2:4] == (False, True)
    assert env.was_real_done
    game = Game(end=2)
    env = EpisodicLifeEnv(game)
    env.reset()
    game.lives_left = 2
    assert env.step(1)[2]
    env.reset()  # its no-op ends the game
    assert game.log == ["reset", 1, 0, "reset"]


@pytest.mark.parametrize("skip", [1, 2, 4])
def test_max_and_skip(skip):
    game = Game()
    env = MaxAndSkipEnv(game, skip)
    assert env._skip == skip
    env.reset()
    obs, reward, _, _, info = env.step(2)
    assert game.log == ["reset", *[2] * skip]
    assert (obs.max(), reward, info["time"]) == (skip, skip, skip)
    kept = obs.copy()
    env.step(2)
    np.testing.assert_array_equal(obs, kept)
    with pytest.raises(ValueError, match="skip must be at least 1, got 0"):
        MaxAndSkipEnv(Game(), 0)


@pytest.mark.parametrize(("end", "frames"), [(5, [5]), (6, [5, 6]), (7, [6, 7])])
def test_max_and_skip_at_the_end_shows_the_frames_of_the_end(end, frames):
    class Marks(Game):
        def step(self, action):
            _, *rest = super().step(action)
            self.frame[:] = 0
            self.frame[self.time] = 1
            return (self.frame, *rest)

    env = MaxAndSkipEnv(Marks(end=end), 4)
    env.reset()
    env.step(0)
    obs, reward, terminated, _, _ = env.step(0)
    assert terminated
    assert reward == end - 4
    assert np.flatnonzero(obs.max(axis=(1, 2))).tolist() == frames


def test_clip_reward():
    env = ClipRewardEnv(Game())
    assert [env.reward(reward) for reward in (3.5, 0, -2, np.float32(0.1))] == [1.0, 0.0, -1.0, 1.0]
    assert type(env.reward(2)) is float


def test_warp_frame():
    cv2 = pytest.importorskip("cv2")
    env = WarpFrame(Game(), width=30, height=20)
    assert env.observation_space == gym.spaces.Box(0, 255, (20, 30, 1), np.uint8)
    frame = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    warped = env.observation(frame)
    assert env.observation_space.contains(warped)
    grey = frame @ np.array([0.299, 0.587, 0.114])
    assert abs(warped.mean() - grey.mean()) < 1.0
    np.testing.assert_array_equal(
        warped[:, :, 0], cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (30, 20), interpolation=cv2.INTER_AREA)
    )
    assert copy.deepcopy(env).width == 30
    with pytest.raises(ValueError, match="needs RGB images"):
        WarpFrame(gym.make("CartPole-v1"))


def test_atari_wrapper_parts():
    pytest.importorskip("cv2")
    assert layers(AtariWrapper(Game())) == [
        "AtariWrapper", "ClipRewardEnv", "WarpFrame", "FireResetEnv", "EpisodicLifeEnv", "MaxAndSkipEnv", "NoopResetEnv"
    ]  # fmt: skip
    bare = {"noop_max": 0, "frame_skip": 1, "terminal_on_life_loss": False, "clip_reward": False}
    assert layers(AtariWrapper(Game(), **bare)) == ["AtariWrapper", "WarpFrame", "FireResetEnv"]
    assert layers(AtariWrapper(Game(meanings=["NOOP", "UP"]), **bare)) == ["AtariWrapper", "WarpFrame"]
    sticky = AtariWrapper(Game(), action_repeat_probability=0.25, screen_size=50, frame_skip=3, noop_max=7)
    assert layers(sticky)[-1] == "StickyActionEnv"
    assert sticky.observation_space.shape == (50, 50, 1)
    assert (sticky.get_wrapper_attr("_skip"), sticky.get_wrapper_attr("noop_max")) == (3, 7)
    with pytest.raises(AttributeError, match=r"get_action_meanings\(\).*CartPole.*ale-py"):
        AtariWrapper(gym.make("CartPole-v1"))


def test_double_frame_skip_is_warned_of():
    pytest.importorskip("cv2")
    game = Game()
    game._frameskip = 4
    with pytest.warns(UserWarning, match=r"already plays each action 4 times.*frameskip"):
        AtariWrapper(game)


def test_missing_opencv_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[atari\]'"):
        WarpFrame(Game())


def test_breakout():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from polyak.envs.make import make_atari_env

    venv = make_atari_env("BreakoutNoFrameskip-v4", n_envs=2, seed=1)
    obs = venv.reset()
    assert obs.shape == (2, 84, 84, 1)
    again = make_atari_env("BreakoutNoFrameskip-v4", n_envs=2, seed=1)
    np.testing.assert_array_equal(again.reset(), obs)
    actions = np.random.default_rng(0).integers(0, 4, (150, 2))
    rewards, lives, ends = [], [], 0
    for action in actions:
        obs, reward, dones, infos = venv.step(action)
        np.testing.assert_array_equal(again.step(action)[0], obs)
        rewards += reward.tolist()
        lives += [info["lives"] for info in infos]
        ends += int(dones.sum())
    assert set(rewards) <= {0.0, 1.0}
    assert ends >= 2
    assert len(set(lives)) > 1
