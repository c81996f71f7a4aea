import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.wrappers.action_masker import ActionMasker
from polyak.envs.wrappers.check_nan import VecCheckNan
from polyak.envs.wrappers.extract_dict import VecExtractDictObs
from polyak.envs.wrappers.frame_stack import StackedObservations, VecFrameStack
from polyak.envs.wrappers.time_feature import TimeFeatureWrapper
from polyak.envs.wrappers.transpose import VecTransposeImage
from polyak.envs.wrappers.video import VecVideoRecorder


class Script(gym.Env):
    """Plays back observations and rewards; the episode ends with the script, and the next one plays it again."""

    action_space = spaces.Discrete(2)
    metadata = {"render_fps": 10}

    def __init__(self, observation_space, observations, rewards=None, render_mode=None):
        self.observation_space, self.observations = observation_space, observations
        self.rewards = rewards or [0.0] * len(observations)
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self.observations[0], {}

    def step(self, action):
        self.at += 1
        over = self.at == len(self.observations) - 1
        return self.observations[self.at], self.rewards[self.at], over, False, {}

    def render(self):
        image = np.zeros((15, 20, 3), np.uint8)
        image[:, :, 0] = 40 * self.at
        return image


def scripted(space, *scripts, **kwargs):
    return DummyVecEnv([lambda script=script: Script(space, script, **kwargs) for script in scripts])


def act(venv):
    return venv.step(np.zeros(venv.num_envs, int))


VECTOR = spaces.Box(np.array([-1, -2], np.float32), np.array([10, 20], np.float32))
LAST = spaces.Box(0, 255, (4, 5, 3), np.uint8)
FIRST = spaces.Box(0, 255, (3, 4, 5), np.uint8)


def images(n, shape, start=0):
    """n images that differ everywhere."""
    size = int(np.prod(shape))
    return [((np.arange(size) * 7 + 31 * (start + i)) % 251).astype(np.uint8).reshape(shape) for i in range(n)]


# --- frame stack ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "order", "axis"),
    [(LAST, None, -1), (FIRST, None, 0), (LAST, "last", -1), (LAST, "first", 0), (FIRST, "last", -1)],
)
def test_images_are_stacked_along_their_channels(space, order, axis):
    script = images(4, space.shape)
    env = VecFrameStack(scripted(space, script, script), 2, channels_order=order)
    nothing = np.zeros(space.shape, np.uint8)
    first = np.concatenate([nothing, script[0]], axis=axis)
    assert env.observation_space == spaces.Box(0, 255, first.shape, np.uint8)
    for index in range(2):
        np.testing.assert_array_equal(env.reset()[index], first)
    np.testing.assert_array_equal(act(env)[0][1], np.concatenate(script[0:2], axis=axis))
    np.testing.assert_array_equal(act(env)[0][1], np.concatenate(script[1:3], axis=axis))
    obs, _, _, infos = act(env)
    np.testing.assert_array_equal(obs[1], first)
    assert obs.dtype == np.uint8
    np.testing.assert_array_equal(infos[1]["terminal_observation"], np.concatenate(script[2:4], axis=axis))


def test_dict_observations_are_stacked_by_key():
    space = spaces.Dict({"p": LAST, "v": VECTOR})
    script = [{"p": image, "v": np.array([i, -i], np.float32)} for i, image in enumerate(images(3, LAST.shape))]
    env = VecFrameStack(scripted(space, script, script), 2)
    assert env.observation_space["p"].shape == (4, 5, 6)
    assert env.observation_space["v"].shape == (4,)
    env.reset()
    obs = act(env)[0]
    np.testing.assert_array_equal(obs["v"], [[0, 0, 1, -1]] * 2)
    np.testing.assert_array_equal(obs["p"][1], np.concatenate([script[0]["p"], script[1]["p"]], axis=-1))
    obs, _, _, infos = act(env)
    np.testing.assert_array_equal(obs["v"], [[0, 0, 0, 0]] * 2)
    final = infos[1]["terminal_observation"]
    np.testing.assert_array_equal(final["v"], [1, -1, 2, -2])
    np.testing.assert_array_equal(final["p"], np.concatenate([script[1]["p"], script[2]["p"]], axis=-1))

    mixed = VecFrameStack(scripted(space, script), 2, channels_order={"p": "first", "v": None})
    assert mixed.observation_space["p"].shape == (8, 5, 3)
    with pytest.raises(ValueError, match="no entry for the key 'v'"):
        VecFrameStack(scripted(space, script), 2, channels_order={"p": "first"})


def test_stack_of_one_and_bad_settings():
    script = [np.array([i, 10 + i], np.float32) for i in range(3)]
    env = VecFrameStack(scripted(VECTOR, script), 1)
    np.testing.assert_array_equal(env.reset(), [[0, 10]])
    _, _, _, _ = act(env)
    np.testing.assert_array_equal(act(env)[3][0]["terminal_observation"], [2, 12])
    with pytest.raises(ValueError, match="n_stack must be at least 1, got 0"):
        StackedObservations(2, 0, VECTOR)
    with pytest.raises(ValueError, match="channels_order must be one of"):
        StackedObservations(2, 2, VECTOR, "middle")
    with pytest.raises(ValueError, match="Discrete"):
        StackedObservations(2, 2, spaces.Dict({"d": spaces.Discrete(2)}))


def test_missing_terminal_observation_warns():
    stack = StackedObservations(1, 2, VECTOR)
    stack.reset(np.ones((1, 2), np.float32))
    with pytest.warns(UserWarning, match="without terminal_observation"):
        stacked, infos = stack.update(np.full((1, 2), 5, np.float32), np.array([True]), [{}])
    np.testing.assert_array_equal(stacked, [[0, 0, 5, 5]])
    assert infos == [{}]


# --- transpose ------------------------------------------------------------------------------------------------------


def test_transpose_only_the_channels_last_images_of_a_dict():
    space = spaces.Dict({"last": LAST, "first": FIRST, "v": VECTOR})
    script = [
        {"last": a, "first": b, "v": np.zeros(2, np.float32)}
        for a, b in zip(images(2, LAST.shape), images(2, FIRST.shape), strict=True)
    ]
    env = VecTransposeImage(scripted(space, script))
    assert env.observation_space == spaces.Dict({"last": FIRST, "first": FIRST, "v": VECTOR})
    assert env.reset()["last"].shape == (1, 3, 4, 5)
    _, _, _, infos = act(env)
    final = infos[0]["terminal_observation"]
    np.testing.assert_array_equal(final["last"], script[1]["last"].transpose(2, 0, 1))
    np.testing.assert_array_equal(final["first"], script[1]["first"])
    given = {"last": script[0]["last"], "first": script[0]["first"], "v": script[0]["v"]}
    env.transpose_observations(given)
    assert given["last"].shape == (4, 5, 3)


def test_transpose_skip_and_refusals():
    script = images(2, LAST.shape)
    env = VecTransposeImage(scripted(LAST, script), skip=True)
    assert env.observation_space == LAST
    np.testing.assert_array_equal(env.reset()[0], script[0])
    with pytest.raises(ValueError, match="is channels-first already"):
        VecTransposeImage(scripted(FIRST, images(2, FIRST.shape)))
    with pytest.raises(ValueError, match="must be an image"):
        VecTransposeImage(scripted(VECTOR, [np.zeros(2)]))
    batch = np.stack(script)
    np.testing.assert_array_equal(VecTransposeImage.transpose_image(batch), batch.transpose(0, 3, 1, 2))


# --- extract --------------------------------------------------------------------------------------------------------


def test_extract_one_entry():
    space = spaces.Dict({"v": VECTOR, "d": spaces.Discrete(9)})
    script = [{"v": np.array([i, i], np.float32), "d": i} for i in range(3)]
    env = VecExtractDictObs(scripted(space, script, script), "v")
    assert env.observation_space == VECTOR
    np.testing.assert_array_equal(env.reset(), [[0, 0]] * 2)
    np.testing.assert_array_equal(act(env)[0], [[1, 1]] * 2)
    _, _, _, infos = act(env)
    np.testing.assert_array_equal(infos[1]["terminal_observation"], [2, 2])
    with pytest.raises(ValueError, match=r"key='x' is not in the observation space, which has \['d', 'v'\]"):
        VecExtractDictObs(scripted(space, script), "x")
    with pytest.raises(ValueError, match="VecExtractDictObs needs a Dict"):
        VecExtractDictObs(scripted(VECTOR, [np.zeros(2)]), "v")


# --- NaN ------------------------------------------------------------------------------------------------------------


def vectors(*values):
    return [np.array([value, 0], np.float32) for value in values]


@pytest.mark.parametrize(("bad", "kind"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_bad_observation_names_environment_and_source(bad, kind):
    env = VecCheckNan(scripted(VECTOR, vectors(0, 1, 2), vectors(0, bad, 2)), raise_exception=True)
    env.reset()
    with pytest.raises(ValueError, match=rf"{kind} in observations of environment 1\. Originated from the environment"):
        act(env)


def test_bad_reset_reward_action_and_final_observation():
    with pytest.raises(ValueError, match=r"nan in observations of environment 0\. .*its reset.*after a reset"):
        VecCheckNan(scripted(VECTOR, vectors(np.nan, 1)), raise_exception=True).reset()

    env = VecCheckNan(scripted(VECTOR, vectors(0, 1, 2), rewards=[0, np.nan, 0]), raise_exception=True)
    env.reset()
    with pytest.raises(ValueError, match="nan in rewards of environment 0"):
        act(env)

    env = VecCheckNan(scripted(VECTOR, vectors(0, 1, 2), vectors(0, 1, 2)), raise_exception=True)
    env.reset()
    with pytest.raises(ValueError, match=r"nan in actions of environment 1\. Originated from the RL model"):
        env.step(np.array([0, np.nan]))

    env = VecCheckNan(scripted(VECTOR, vectors(0, np.nan)), raise_exception=True)
    env.reset()
    with pytest.raises(ValueError, match=r"nan in terminal_observation\. Originated from environment 0 \(at the end"):
        act(env)


def test_bad_key_is_named():
    space = spaces.Dict({"good": VECTOR, "bad": VECTOR})
    script = [{"good": np.zeros(2), "bad": np.array([0, value])} for value in (0, np.nan, 0)]
    env = VecCheckNan(scripted(space, script), raise_exception=True)
    env.reset()
    with pytest.raises(ValueError, match=r"Found nan in observations\['bad'\] of environment 0\."):
        act(env)


def test_warn_once_or_always_and_without_infinities():
    script = vectors(0, np.nan, np.nan, np.nan, 0)
    env = VecCheckNan(scripted(VECTOR, script))
    env.reset()
    with pytest.warns(UserWarning, match="nan in observations"):
        act(env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        act(env)
    env = VecCheckNan(scripted(VECTOR, script), warn_once=False)
    env.reset()
    for _ in range(2):
        with pytest.warns(UserWarning, match="nan in observations"):
            act(env)
    env = VecCheckNan(scripted(VECTOR, vectors(0, np.inf, 0)), raise_exception=True, check_inf=False)
    env.reset()
    act(env)


# --- video ----------------------------------------------------------------------------------------------------------


def film(path):
    import imageio

    with imageio.get_reader(path) as reader:
        # list(reader) would ask for the length, which is infinite
        return np.stack([frame for frame in reader]), reader.get_meta_data()  # noqa: C416


def test_video(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    script = vectors(0, 1, 2, 3, 4, 5)
    folder = tmp_path / "a" / "films"
    env = VecVideoRecorder(
        scripted(VECTOR, script, script, render_mode="rgb_array"),
        folder,
        record_video_trigger=lambda step: step in (2, 10),
        video_length=3,
        name_prefix="test",
    )
    env.reset()
    for _ in range(11):
        act(env)
    assert [file.name for file in folder.iterdir() if not file.name.startswith(".")] == ["test-step-2-to-step-5.mp4"]
    frames, meta = film(folder / "test-step-2-to-step-5.mp4")
    # two images of 15 x 20 above each other: 30 x 20
    assert frames.shape == (3, 30, 20, 3)
    assert meta["fps"] == 10
    red = frames[:, :, :, 0].mean(axis=(1, 2))
    np.testing.assert_allclose(red, [80, 120, 160], atol=12)  # what a lossy film leaves; images are 40 apart
    # a film cut short is kept
    env.close()
    assert len(film(folder / "test-step-10-to-step-13.mp4")[0]) == 2
    assert sorted(file.name for file in folder.iterdir()) == [
        "test-step-10-to-step-13.mp4",
        "test-step-2-to-step-5.mp4",
    ]


def test_video_pads_odd_images_and_keeps_short_films(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    env = VecVideoRecorder(
        scripted(VECTOR, vectors(0, 1, 2), render_mode="rgb_array"), tmp_path, lambda step: step == 0, video_length=50
    )
    env.reset()
    act(env)
    env.close()
    assert film(tmp_path / "rl-video-step-0-to-step-50.mp4")[0].shape == (2, 16, 20, 3)


def test_without_an_image_a_recording_stops_and_training_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    venv = scripted(VECTOR, vectors(0, 1, 2), render_mode="rgb_array")
    monkeypatch.setattr(venv, "render", lambda: None)
    env = VecVideoRecorder(venv, tmp_path, lambda step: step == 0, video_length=2)
    with pytest.warns(UserWarning, match="no image from render"):
        env.reset()
    act(env)
    env.close()
    assert not env.recording
    assert not list(tmp_path.iterdir())


def test_video_refusals(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="render_mode must be 'rgb_array' to record videos, got None"):
        VecVideoRecorder(scripted(VECTOR, vectors(0, 1)), tmp_path, lambda step: True)
    venv = scripted(VECTOR, vectors(0, 1), render_mode="rgb_array")
    with pytest.raises(ValueError, match="video_length must be at least 1"):
        VecVideoRecorder(venv, tmp_path, lambda step: True, video_length=0)
    monkeypatch.setitem(__import__("sys").modules, "imageio", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[video\]'"):
        VecVideoRecorder(venv, tmp_path, lambda step: True)


# --- masks and time ---


class Choosy(gym.Env):
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(3)

    def may(self):
        return [True, False, True]

    def may_in(self, env):
        return [env is self, True, False]


def test_a_masker_asks_a_function_or_a_method():
    env = Choosy()
    assert ActionMasker(env, lambda env: env.may()).action_masks() == [True, False, True]
    assert ActionMasker(env, "may").action_masks() == [True, False, True]
    assert ActionMasker(env, "may_in").action_masks() == [True, True, False]
    assert ActionMasker(gym.Wrapper(env), "may").get_wrapper_attr("action_masks")() == [True, False, True]
    with pytest.raises(AttributeError, match="might"):
        ActionMasker(env, "might")
    with pytest.raises(ValueError, match="action_mask_fn=5 cannot be called"):
        ActionMasker(env, 5)


def test_the_time_that_is_left_is_seen():
    env = TimeFeatureWrapper(gym.make("Pendulum-v1", max_episode_steps=4), max_steps=100)
    assert env.observation_space.shape == (4,)
    assert (env.observation_space.low[-1], env.observation_space.high[-1]) == (0, 1)
    seen = [env.reset(seed=0)[0]]
    seen += [env.step(env.action_space.sample())[0] for _ in range(4)]
    assert [obs[-1] for obs in seen] == [1, 0.75, 0.5, 0.25, 0]
    assert all(env.observation_space.contains(obs) for obs in seen)
    assert env.reset()[0][-1] == 1


def test_the_time_stands_still_in_a_test_and_passes_without_a_limit():
    env = TimeFeatureWrapper(gym.make("Pendulum-v1").unwrapped, max_steps=10)
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[0][-1] == np.float32(0.9)
    env = TimeFeatureWrapper(gym.make("Pendulum-v1"), test_mode=True)
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[0][-1] == 1


def test_the_time_is_a_part_of_the_observation_of_a_dict():
    part = spaces.Box(-1, 1, (2,), np.float64)
    space = spaces.Dict({"observation": part, "goal": spaces.Discrete(2)})
    env = TimeFeatureWrapper(Script(space, [{"observation": np.zeros(2), "goal": 1}] * 3), max_steps=4)
    assert env.reset()[0]["observation"].tolist() == [0, 0, 1]
    obs = env.step(0)[0]
    assert obs["observation"].tolist() == [0, 0, 0.75]
    assert obs["observation"].dtype == np.float64
    assert env.observation_space.contains({**obs, "goal": np.int64(obs["goal"])})
    for wrong in (spaces.Discrete(2), spaces.Box(0, 1, (2, 2)), spaces.Dict({"goal": part})):
        with pytest.raises(ValueError, match="one dimension"):
            TimeFeatureWrapper(Script(wrong, [0, 0]))
