import pickle
import warnings

import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.wrappers.frame_stack import VecFrameStack
from polyak.envs.wrappers.normalize import VecNormalize, detached, sync_envs_normalization, unwrap_vec_normalize
from polyak.envs.wrappers.running import RunningMeanStd
from tests.tolerance import bound
from tests.worlds import World


class Random(World):
    """Random observations of mean 5 and deviation 3, random rewards; episodes of ``length`` steps."""

    observation_space, length, truncates = spaces.Box(-50, 50, (3,), np.float32), 4, True
    render_mode = None

    def look(self):
        def one(space):
            if isinstance(space, spaces.Dict):
                return {key: one(part) for key, part in space.spaces.items()}
            if isinstance(space, spaces.Discrete):
                return int(self.np_random.integers(space.n))
            return self.np_random.normal(5, 3, space.shape).astype(space.dtype)

        return one(self.observation_space)

    def act(self, action):
        return self.np_random.normal(2, 4)


DICT_SPACE = spaces.Dict(
    {"a": spaces.Box(-50, 50, (2,), np.float32), "b": spaces.Box(-50, 50, (1,), np.float32), "d": spaces.Discrete(3)}
)


def randoms(n=2, seed=0, **kwargs):
    given = {name: value for name, value in kwargs.items() if value is not None}
    venv = DummyVecEnv([lambda: Random(**given)] * n)
    venv.seed(seed)
    return venv


NO_ACTION = np.zeros(2, int)
NEAR = bound(4, size=20)
"""Between normalised numbers: a few roundings to float32 of numbers below 20 (5 deviations of 3 around 5)."""
BACK = bound(4, size=2 * 20)
"""Between original numbers, after normalisation and back."""
UNIT_VARIANCE = bound(4) + 1e-8
"""Relative: the deviation by which is divided is sqrt(1 + epsilon), and epsilon 1e-8."""


# --- RunningMeanStd -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_running_statistics_equal_those_of_all_data(dtype):
    rng = np.random.default_rng(0)
    batches = [rng.normal(100, 20, (n, 3)).astype(dtype) for n in (1, 7, 64, 1, 1000)]
    everything = np.concatenate(batches).astype(np.float64)
    statistics = RunningMeanStd(epsilon=0, shape=(3,))
    for batch in batches:
        statistics.update(batch)
    rows, size = len(everything), np.abs(everything).max()
    np.testing.assert_allclose(statistics.mean, everything.mean(0), rtol=0, atol=bound(rows, size, np.float64))
    np.testing.assert_allclose(statistics.var, everything.var(0), rtol=0, atol=bound(rows, size**2, np.float64))
    assert statistics.count == len(everything)


def test_float32_batches_are_summed_in_float64():
    data = np.full((100_000, 1), 0.1, np.float32) + 1000
    statistics = RunningMeanStd(epsilon=0, shape=(1,))
    statistics.update(data)
    assert statistics.mean[0] == pytest.approx(data.astype(np.float64).mean(), rel=bound(len(data), dtype=np.float64))


def test_running_statistics_refuse_another_shape():
    with pytest.raises(ValueError, match=r"must have shape \(B, \*\(3,\)\), got \(2, 4\)"):
        RunningMeanStd(shape=(3,)).update(np.zeros((2, 4)))


# --- normalising ----------------------------------------------------------------------------------------------------


def test_observations_and_rewards_against_a_plain_recomputation():
    gamma, epsilon, clip_obs, clip_reward = 0.9, 1e-3, 1.5, 0.7
    plain = randoms(length=4)
    env = VecNormalize(randoms(length=4), gamma=gamma, epsilon=epsilon, clip_obs=clip_obs, clip_reward=clip_reward)
    seen = [plain.reset()]
    returns, seen_returns = np.zeros(2), []

    def normalized(obs):
        # the first guess (mean 0, variance 1) has weight 1e-4
        data = np.concatenate(seen).astype(np.float64)
        weight = np.concatenate([[1e-4 / 2, 1e-4 / 2], np.ones(len(data))])
        data = np.concatenate([[[-1.0] * 3, [1.0] * 3], data])
        mean = np.average(data, axis=0, weights=weight)
        var = np.average((data - mean) ** 2, axis=0, weights=weight)
        return np.clip((obs - mean) / np.sqrt(var + epsilon), -clip_obs, clip_obs)

    np.testing.assert_allclose(env.reset(), normalized(seen[0]), rtol=0, atol=NEAR)
    clipped = 0
    for step in range(1, 12):
        obs, rewards, dones, infos = plain.step(NO_ACTION)
        got_obs, got_rewards, got_dones, got_infos = env.step(NO_ACTION)
        seen.append(obs)
        returns = returns * gamma + rewards
        seen_returns.extend(returns)
        weight = np.concatenate([[1e-4 / 2, 1e-4 / 2], np.ones(len(seen_returns))])
        data = np.concatenate([[-1.0, 1.0], seen_returns])
        var = np.average((data - np.average(data, weights=weight)) ** 2, weights=weight)
        expected = np.clip(rewards / np.sqrt(var + epsilon), -clip_reward, clip_reward)
        np.testing.assert_allclose(got_obs, normalized(obs), rtol=0, atol=NEAR)
        np.testing.assert_allclose(got_rewards, expected, rtol=0, atol=NEAR)
        clipped += (np.abs(got_rewards) == np.float32(clip_reward)).sum()
        assert got_obs.dtype == got_rewards.dtype == np.float32
        np.testing.assert_array_equal(env.get_original_obs(), obs)
        np.testing.assert_array_equal(env.get_original_reward(), rewards)
        assert got_dones.tolist() == dones.tolist() == [step % 4 == 0] * 2
        for index in np.flatnonzero(dones):
            final = infos[index]["terminal_observation"]
            np.testing.assert_allclose(got_infos[index]["terminal_observation"], normalized(final), rtol=0, atol=NEAR)
            np.testing.assert_array_equal(env.get_original_terminal_obs(index), final)
            returns[index] = 0
        np.testing.assert_allclose(env.returns, returns)
    assert 0 < clipped < 22
    with pytest.raises(KeyError, match="did not end"):
        env.get_original_terminal_obs(0)


def test_centred_rewards_against_a_plain_recomputation():
    env = VecNormalize(randoms(length=4), norm_obs=False, clip_reward=1.2, epsilon=1e-3, center_reward=True)
    env.reset()
    seen, clipped = [], 0
    for _ in range(11):
        _, rewards, _, _ = env.step(NO_ACTION)
        seen.extend(env.get_original_reward())
        data = np.concatenate([[-1.0, 1.0], seen])  # the first guess, mean 0 and variance 1, has weight 1e-4
        weight = np.concatenate([[1e-4 / 2, 1e-4 / 2], np.ones(len(seen))])
        mean = np.average(data, weights=weight)
        scaled = (env.get_original_reward() - mean) / np.sqrt(np.average((data - mean) ** 2, weights=weight) + 1e-3)
        np.testing.assert_allclose(rewards, np.clip(scaled, -1.2, 1.2), rtol=0, atol=NEAR)
        inside = np.abs(scaled) < 1.2
        clipped += (~inside).sum()
        back = env.unnormalize_reward(rewards.astype(np.float64))
        np.testing.assert_allclose(back[inside], env.get_original_reward()[inside], rtol=0, atol=BACK)
    assert 0 < clipped < 22


def test_centred_rewards_stay_so_in_files_copies_and_other_environments(tmp_path):
    env = trained(norm_reward=True, center_reward=True)
    expected = env.normalize_reward(np.array([0.5, 3.0]))
    env.save(tmp_path / "s.npz")
    evaluation = trained(norm_reward=True)
    assert "center_reward=False" in evaluation.take_statistics(env)
    assert not trained().same_statistics(env)
    sync_envs_normalization(env, evaluation)
    for other in (VecNormalize.load(tmp_path / "s.npz", randoms()), env.detached(), evaluation):
        assert other.center_reward
        np.testing.assert_array_equal(
            other.normalize_reward(np.array([0.5, 3.0])) * np.sqrt(other.ret_rms.var + other.epsilon),
            expected * np.sqrt(env.ret_rms.var + other.epsilon),
        )
    with pytest.raises(ValueError, match="center_reward=True: Stable-Baselines3's VecNormalize divides rewards only"):
        env.save_sb3(tmp_path / "s.pkl")


def test_statistics_of_older_files_divide_by_the_deviation_of_returns():
    state = trained(norm_reward=True).state_dict()
    del state["center_reward"]
    assert not VecNormalize.from_state_dict(randoms(), state).center_reward
    assert not detached(state).center_reward
    with pytest.raises(ValueError, match="center_reward is 'yes', neither true nor false"):
        detached(state | {"center_reward": "yes"})


def test_reset_forgets_returns_but_not_statistics():
    env = VecNormalize(randoms())
    env.reset()
    env.step(NO_ACTION)
    count, rewards_count = env.obs_rms.count, env.ret_rms.count
    env.reset()
    assert env.returns.tolist() == [0, 0]
    assert env.obs_rms.count == count + 2
    assert env.ret_rms.count == rewards_count


def test_no_training_leaves_the_statistics():
    env = VecNormalize(randoms(), training=False)
    env.reset()
    for _ in range(5):
        obs, rewards, _, _ = env.step(NO_ACTION)
    assert env.obs_rms.count == env.ret_rms.count == 1e-4
    np.testing.assert_allclose(obs, np.clip(env.get_original_obs(), -10, 10), rtol=UNIT_VARIANCE)
    np.testing.assert_allclose(rewards, np.clip(env.get_original_reward(), -10, 10), rtol=UNIT_VARIANCE)


def test_originals_are_copies():
    env = VecNormalize(randoms())
    env.reset()
    env.step(NO_ACTION)
    obs, reward = env.get_original_obs(), env.get_original_reward()
    expected = obs.copy(), reward.copy()
    obs[:], reward[:] = 0, 0
    np.testing.assert_array_equal(env.get_original_obs(), expected[0])
    np.testing.assert_array_equal(env.get_original_reward(), expected[1])


def test_images_become_floats():
    image = spaces.Box(0, 255, (8, 6, 3), np.uint8)
    env = VecNormalize(randoms(observation_space=image), clip_obs=5)
    assert env.observation_space == spaces.Box(-5, 5, (8, 6, 3), np.float32)
    assert env.reset().dtype == np.float32
    both = VecNormalize(randoms(observation_space=spaces.Dict({"p": image, "a": DICT_SPACE["a"]})), clip_obs=5)
    assert both.observation_space["p"] == env.observation_space
    assert both.observation_space["a"] == DICT_SPACE["a"]
    assert VecNormalize(randoms(observation_space=image), norm_obs=False).observation_space == image


def test_bad_spaces_and_keys():
    with pytest.raises(ValueError, match=r"only supports.*'d'.*explicitly pass the observation keys"):
        VecNormalize(randoms(observation_space=DICT_SPACE))
    with pytest.raises(ValueError, match="only supports"):
        VecNormalize(randoms(observation_space=spaces.Discrete(3)))
    with pytest.raises(ValueError, match="is applicable only"):
        VecNormalize(randoms(), norm_obs_keys=["a"])
    with pytest.raises(ValueError, match="norm_obs_keys has 'nope'"):
        VecNormalize(randoms(observation_space=DICT_SPACE), norm_obs_keys=["nope"])
    VecNormalize(randoms(observation_space=spaces.Discrete(3)), norm_obs=False)


# --- keeping --------------------------------------------------------------------------------------------------------


SETTINGS = {
    "training": True,
    "norm_obs": True,
    "norm_reward": False,
    "clip_obs": 3.0,
    "clip_reward": 4.0,
    "gamma": 0.8,
    "epsilon": 1e-3,
}


def trained(observation_space=None, **settings):
    env = VecNormalize(randoms(observation_space=observation_space), **{**SETTINGS, **settings})
    env.reset()
    for _ in range(6):
        env.step(NO_ACTION)
    return env


def assert_same_normalizer(a, b):
    assert {name: getattr(a, name) for name in SETTINGS} == {name: getattr(b, name) for name in SETTINGS}
    assert a.norm_obs_keys == b.norm_obs_keys
    x, y = a.state_dict(), b.state_dict()
    assert x.keys() == y.keys()
    for key, value in x.items():
        np.testing.assert_array_equal(value, y[key], err_msg=key)


@pytest.mark.parametrize(
    "settings", [{}, {"observation_space": DICT_SPACE, "norm_obs_keys": ["a", "b"]}, {"norm_obs": False}]
)
def test_state_dict_round_trip(settings):
    env = trained(**settings)
    state = env.state_dict()
    kinds = {type(value) for value in state.values()}
    assert kinds <= {np.ndarray, float, bool, list, type(None)}
    space = settings.get("observation_space")
    assert_same_normalizer(env, VecNormalize.from_state_dict(randoms(observation_space=space), state))
    # what is returned is a copy
    kept = {key: np.copy(value) for key, value in state.items()}
    env.step(NO_ACTION)
    assert env.ret_rms.count != kept["ret_rms/count"]
    np.testing.assert_equal({key: np.copy(value) for key, value in state.items()}, kept)


def test_load_state_dict_replaces_the_settings():
    env = VecNormalize(randoms())
    env.load_state_dict(trained().state_dict())
    assert_same_normalizer(env, trained())


def test_load_state_dict_with_another_number_of_environments():
    env = VecNormalize(randoms(n=5))
    env.load_state_dict(trained().state_dict())
    assert env.returns.tolist() == [0] * 5
    assert env.obs_rms.count == trained().obs_rms.count


def test_statistics_survive_norm_obs_being_switched_off():
    env = trained()
    env.norm_obs = False
    other = VecNormalize.from_state_dict(randoms(), env.state_dict())
    assert not other.norm_obs
    np.testing.assert_array_equal(other.obs_rms.mean, env.obs_rms.mean)


def test_load_state_dict_refuses_other_shapes():
    state = trained().state_dict()
    with pytest.raises(ValueError, match=r"'obs_rms' have shape \(3,\), the environment's observations \(4,\)"):
        VecNormalize.from_state_dict(randoms(observation_space=spaces.Box(-1, 1, (4,))), state)


@pytest.mark.parametrize("name", ["stats.pkl", "stats", "deep/er/stats.npz"])
@pytest.mark.parametrize(
    "settings", [{}, {"observation_space": DICT_SPACE, "norm_obs_keys": ["a", "b"]}, {"norm_obs": False}]
)
def test_save_and_load(tmp_path, name, settings):
    env = trained(**settings)
    path = tmp_path / name
    env.save(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    loaded = VecNormalize.load(str(path), randoms(observation_space=settings.get("observation_space")))
    assert_same_normalizer(env, loaded)
    observation = env.get_original_obs()
    np.testing.assert_equal(loaded.normalize_obs(observation), env.normalize_obs(observation))


def test_saved_file_holds_no_pickle(tmp_path):
    path = tmp_path / "stats.pkl"
    trained().save(path)
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            assert archive[name].dtype != object


def test_infinite_clipping_survives_saving(tmp_path):
    env = trained(clip_obs=np.inf)
    env.save(tmp_path / "stats")
    assert VecNormalize.load(tmp_path / "stats", randoms()).clip_obs == np.inf


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "stats"
    path.write_text("old")
    monkeypatch.setattr(np, "savez", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained().save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_load_refuses_foreign_files_without_running_them(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was run",))

    path = tmp_path / "sb3.pkl"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="_Fail, which is not among what is read"):
        VecNormalize.load(path, randoms())
    header = np.array('{"format": "polyak.VecNormalize/1", "state": {}}')
    with path.open("wb") as file:
        np.savez(file, header=header, **{"state/obs_rms/mean": np.array([Evil()], object)})
    with pytest.raises(ValueError, match="holds Python objects, which would be unpickled"):
        VecNormalize.load(path, randoms())
    path.write_text("what is this")
    with pytest.raises(ValueError, match="not a file written by VecNormalize"):
        VecNormalize.load(path, randoms())
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="not a file written by VecNormalize"):
        VecNormalize.load(tmp_path / "other.npz", randoms())


def test_pickle_and_set_venv():
    env = trained()
    copy = pickle.loads(pickle.dumps(env))
    copy.set_venv(randoms(n=3))
    assert copy.num_envs == 3
    assert copy.returns.tolist() == [0] * 3
    copy.reset()
    expected = env.obs_rms.copy()
    expected.update(copy.get_original_obs())
    np.testing.assert_allclose(copy.obs_rms.mean, expected.mean)
    with pytest.raises(ValueError, match="wraps a VecEnv already"):
        copy.set_venv(randoms())
    with pytest.raises(AssertionError, match="shapes"):
        pickle.loads(pickle.dumps(env)).set_venv(randoms(observation_space=spaces.Box(-1, 1, (4,))))


# --- two environments -----------------------------------------------------------------------------------------------


def test_unwrap_vec_normalize():
    inner = VecNormalize(randoms())
    outer = VecFrameStack(inner, 2)
    assert unwrap_vec_normalize(outer) is inner
    assert unwrap_vec_normalize(randoms()) is None
    twice = VecNormalize(outer)
    assert unwrap_vec_normalize(twice) is twice


def test_sync_two_layers_in_order():
    env = VecNormalize(VecFrameStack(trained(), 2))
    env.reset()
    other = VecNormalize(VecFrameStack(VecNormalize(randoms(), **SETTINGS), 2))
    sync_envs_normalization(env, other)
    np.testing.assert_array_equal(other.obs_rms.mean, env.obs_rms.mean)
    np.testing.assert_array_equal(other.venv.venv.obs_rms.mean, env.venv.venv.obs_rms.mean)


@pytest.mark.parametrize(
    ("space", "learned", "evaluated", "said"),
    [
        (None, {"clip_obs": 4.0}, {"clip_obs": 10.0}, "has clip_obs=10.0, the training environment's clip_obs=4.0"),
        (None, {"epsilon": 1e-3}, {"epsilon": 1e-8}, "has epsilon=1e-08, the training environment's epsilon=0.001"),
        (None, {"norm_obs": False}, {"norm_obs": True}, "has norm_obs=True, the training environment's norm_obs=False"),
        (None, {"norm_obs": True}, {"norm_obs": False}, "has norm_obs=False, the training environment's norm_obs=True"),
        (
            DICT_SPACE,
            {"norm_obs_keys": ["a"]},
            {"norm_obs_keys": ["b", "a"]},
            r"has norm_obs_keys=\['b', 'a'\], the training environment's norm_obs_keys=\['a'\]",
        ),
        (None, {"norm_reward": False}, {"norm_reward": True}, "has norm_reward=True, the training environment's norm_"),
    ],
)
def test_sync_brings_the_settings_and_names_those_that_differ(space, learned, evaluated, said):
    env = trained(observation_space=space, **learned)
    other = VecNormalize(randoms(seed=5, observation_space=space), **{**SETTINGS, "training": False, **evaluated})
    with pytest.warns(UserWarning, match=said):
        sync_envs_normalization(env, other)
    assert not other.differences(env)
    assert other.obs_rms is not env.obs_rms or env.obs_rms is None
    raw = other.venv.reset()
    ours, theirs = other.normalize_obs(raw), env.normalize_obs(raw)
    for key in raw if isinstance(raw, dict) else [...]:
        np.testing.assert_array_equal(ours[key], theirs[key])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sync_envs_normalization(env, other)  # once


def test_sync_leaves_an_evaluation_its_raw_rewards_and_its_order_of_keys():
    env = trained(observation_space=DICT_SPACE, norm_obs_keys=["a", "b"], clip_reward=3.0)
    other = VecNormalize(
        randoms(observation_space=DICT_SPACE),
        **{**SETTINGS, "norm_obs_keys": ["b", "a"], "training": False, "norm_reward": False, "clip_reward": 9.0},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sync_envs_normalization(env, other)
    assert not other.norm_reward
    assert not other.training


def test_sync_refuses_keys_that_are_not_there():
    env = trained(observation_space=DICT_SPACE, norm_obs_keys=["a", "b"])
    other = VecNormalize(
        randoms(observation_space=spaces.Dict({"a": DICT_SPACE["a"]})), **{**SETTINGS, "norm_obs_keys": ["a"]}
    )
    with (
        pytest.warns(UserWarning, match="norm_obs_keys"),
        pytest.raises(ValueError, match="norm_obs_keys has 'b', which the observation space lacks"),
    ):
        sync_envs_normalization(env, other)


def test_sync_needs_as_many_normalizers():
    sync_envs_normalization(randoms(), randoms())
    sync_envs_normalization(randoms(), trained())
    with pytest.raises(AssertionError, match="1 VecNormalize, the evaluation environment in 0"):
        sync_envs_normalization(trained(), randoms())
