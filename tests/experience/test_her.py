"""Hindsight goals against brute force, episode bookkeeping through ring and truncation, SB3's face."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import DQN
from polyak.envs import BitFlippingEnv
from polyak.experience import GoalSelectionStrategy, HerReplayBuffer
from polyak.experience.episodes import Episodes
from tests.experience.conftest import GoalEnv
from tests.pairs import pairwise
from tests.tolerance import bound

GAMMA = 0.9


def make(data, env, capacity=200, **keywords):
    return HerReplayBuffer(capacity, data.space, data.action_space, env, "cpu", data.n_envs, **keywords)


def allowed_goals(data, buffer, t, env, strategy):
    """Achieved goals that may replace the desired one of row (t, env), by walking over the record."""
    oldest = data.steps - buffer.size()
    end = next((k for k in range(t, data.steps) if data.rows[k]["done"][env]), None)
    assert end is not None, "a row of an episode that still runs was drawn"
    start = t
    while start - 1 >= oldest and not data.rows[start - 1]["done"][env]:
        start -= 1
    times = {"future": range(t, end + 1), "final": [end], "episode": range(start, end + 1)}[strategy]
    return [float(data.rows[k]["next_obs"][env]["achieved_goal"].item()) for k in times]


@pytest.mark.parametrize(
    ("strategy", "n_steps", "saving", "n_envs", "capacity"),
    pairwise(itertools.product(["future", "final", "episode"], [1, 3], [False, True], [1, 3], [30, 300])),
)
def test_goals_rewards_and_frequencies(experience, goal_env, strategy, n_steps, saving, n_envs, capacity):
    data = experience("goal", n_envs=n_envs, steps=70, seed=n_steps)
    buffer = make(
        data,
        goal_env,
        capacity,
        goal_selection_strategy=strategy,
        n_steps=n_steps,
        gamma=GAMMA,
        optimize_memory_usage=saving,
        seed=0,
        n_sampled_goal=9,  # 9 of 10 rows are relabelled
    )
    data.fill(buffer)
    batch = buffer.sample(1500)
    kept = 0
    expected_share, observed = [], []
    for i in range(1500):
        t, env = data.find(batch.actions[i].numpy())
        goal = batch.observations["desired_goal"][i].item()
        assert goal == batch.next_observations["desired_goal"][i].item()
        goals = allowed_goals(data, buffer, t, env, strategy)
        own = float(data.rows[t]["obs"][env]["desired_goal"].item())
        assert goal == own or goal in goals
        kept += goal == own
        # among several goals, each is as likely as it is frequent
        if own != goals[0]:
            expected_share.append(0.9 * goals.count(goals[0]) / len(goals))
            observed.append(goal == goals[0])
        times = data.window(t, env, n_steps)
        reached = [data.rows[k]["next_obs"][env]["achieved_goal"].item() for k in times]
        total = sum(GAMMA**k * -float(abs(r - goal) > 0.5) for k, r in enumerate(reached))
        assert batch.rewards[i].item() == pytest.approx(total, abs=bound(n_steps + 2, size=n_steps))
        last = data.rows[times[-1]]
        assert batch.dones[i].item() == float(last["done"][env] and not last["truncated"][env])
    assert np.mean(observed) == pytest.approx(np.mean(expected_share), abs=5 * 0.5 / np.sqrt(len(observed)))
    assert 0 < kept < 1500


def test_future_includes_the_row_itself(experience, goal_env):
    data = experience("goal", n_envs=1, steps=40)
    buffer = data.fill(make(data, goal_env, n_sampled_goal=1000, seed=0))
    ends = [t for t in range(40) if data.rows[t]["done"][0]]
    batch = buffer._get_samples(np.repeat(ends, 20))
    achieved = batch.next_observations["achieved_goal"]
    fraction = (batch.observations["desired_goal"] == achieved).float().mean()
    assert fraction > 0.97, "the last row of an episode has only its own successor to choose"
    assert (batch.rewards[(batch.observations["desired_goal"] == achieved).ravel()] == 0).all()


def test_infos_reach_compute_reward(experience, goal_env):
    data = experience("goal", steps=40)
    buffer = data.fill(make(data, goal_env, copy_info_dict=True, n_sampled_goal=1000, seed=0))
    batch = buffer.sample(200)
    for i in range(200):
        t, env = data.find(batch.actions[i].numpy())
        reached = batch.next_observations["achieved_goal"][i].item() == batch.observations["desired_goal"][i].item()
        if data.rows[t]["obs"][env]["desired_goal"].item() == batch.observations["desired_goal"][i].item():
            continue  # may be a real row, whose reward was recorded without the bonus
        assert batch.rewards[i].item() == (0 if reached else -1) + data.rows[t]["infos"][env]["bonus"]
    buffer.infos[0, 0]["bonus"] = "changed"
    assert data.rows[0]["infos"][0]["bonus"] != "changed"


def test_final_observations_in_infos_are_not_kept(experience, goal_env):
    data = experience("goal", steps=1, n_envs=1)
    buffer = make(data, goal_env, copy_info_dict=True)
    *rest, _ = data.step(0)
    buffer.add(*rest, [{"terminal_observation": np.zeros(1000), "x": 1}])
    assert buffer.infos[0, 0] == {"x": 1}


def test_infos_are_saved_as_json_or_refused(experience, goal_env):
    data = experience("goal", steps=20, n_envs=1)
    buffer = make(data, goal_env, copy_info_dict=True)
    infos = {"a": np.arange(3, dtype=np.int16), "b": [np.float32(1.5), None, "x"], "c": {"d": True}}
    *rest, _ = data.step(0)
    buffer.add(*rest, [infos])
    restored = make(data, goal_env, copy_info_dict=True)
    restored.load_state_dict(buffer.state_dict())
    got = restored.infos[0, 0]
    assert got["a"].dtype == np.int16
    assert got["a"].tolist() == [0, 1, 2]
    assert (got["b"], got["c"]) == ([1.5, None, "x"], {"d": True})
    buffer.add(*rest, [{"bad": object()}])
    with pytest.raises(TypeError, match="an info holds <object object .* can not be saved as JSON"):
        buffer.state_dict()


def test_before_the_first_episode_ends(experience, goal_env):
    data = experience("goal", n_envs=2, steps=10)
    for row in data.rows:
        row["done"] = np.array([False, False])
    data.rows[5]["done"] = np.array([False, True])
    buffer = make(data, goal_env)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    for sampler in ("uniform", "prioritized"):
        buffer = make(data, goal_env, sampler=sampler)
        data.fill(buffer, 0, 5)
        assert not buffer.can_sample()
        with pytest.raises(RuntimeError, match="No episode has ended yet.*learning_starts"):
            buffer.sample(1)
        data.fill(buffer, 5, 10)
        assert buffer.can_sample()
        rows = {data.find(action.numpy()) for action in buffer.sample(200).actions}
        assert rows == {(t, 1) for t in range(6)}


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_overwritten_and_running_episodes(experience, goal_env, sampler):
    """The ring is far shorter than some episodes; only rows of finished ones that are still held are drawn."""
    data = experience("goal", n_envs=2, steps=120, seed=5)
    rng = np.random.default_rng(0)
    for row in data.rows:
        row["done"] = rng.random(2) < 0.06
    buffer = make(data, goal_env, 20, sampler=sampler, seed=0)
    total, data.steps = data.steps, 0
    drew = 0
    for t in range(total):
        data.steps = t + 1
        buffer.add(*data.step(t))
        held = {
            (k, env)
            for env in range(2)
            for k in range(max(0, t - 9), t + 1)
            if any(data.rows[j]["done"][env] for j in range(k, t + 1))
        }
        assert buffer.can_sample() == bool(held)
        if held:
            batch = buffer.sample(150)
            drawn = {data.find(action.numpy()) for action in batch.actions}
            assert drawn <= held
            drew += drawn == held
            if sampler == "prioritized":
                assert np.count_nonzero(buffer.sampler.tree.leaves) == len(held)
    assert drew > 30


def test_truncate_last_trajectory(experience, goal_env):
    data = experience("goal", n_envs=2, steps=9)
    for t, row in enumerate(data.rows):
        row["done"] = np.array([t == 2, t == 5])
    buffer = data.fill(make(data, goal_env), 0, 6)
    with pytest.warns(UserWarning, match="The last trajectory in the replay buffer will be truncated: it has no end"):
        buffer.truncate_last_trajectory()
    assert buffer.dones[5].tolist() == [1, 1]
    assert buffer.timeouts[5].tolist() == [1, data.rows[5]["truncated"][1]]
    assert (buffer._current_ep_start == buffer.pos).all()
    assert buffer.ep_length[:6, 0].tolist() == [3] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.truncate_last_trajectory()  # nothing is running
    data.fill(buffer, 6, 9)
    assert {data.find(a.numpy())[0] for a in buffer.sample(200).actions} == set(range(6))


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_arrays_that_were_filled_from_elsewhere_are_understood(experience, goal_env, sampler):
    data = experience("goal", n_envs=2, steps=60)
    source = data.fill(make(data, goal_env, 40))
    target = make(data, goal_env, 40)
    for name in ("actions", "rewards", "dones", "timeouts"):
        setattr(target, name, getattr(source, name))
    for key in source.observations:
        target.observations[key][:] = source.observations[key]
        target.next_observations[key][:] = source.next_observations[key]
    target.pos, target.full = source.pos, source.full
    for buffer in (source, target):
        buffer.seed(3)
    a, b = source.sample(100), target.sample(100)
    assert torch.equal(a.actions, b.actions)
    assert torch.equal(a.rewards, b.rewards)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_rebuilt_episodes_equal_those_that_were_followed(envs, steps):
    rng = np.random.default_rng(steps)
    for _ in range(20):
        followed, dones = Episodes(steps, envs), np.zeros((steps, envs))
        for t in range(rng.integers(1, 90)):
            dones[t % steps] = rng.random(envs) < 0.2
            followed.add(dones[t % steps])
        rebuilt = Episodes(steps, envs)
        rebuilt.rebuild(dones, followed.total % steps, followed.total >= steps)
        assert rebuilt.matches(followed.total % steps, followed.total >= steps)
        cells = np.arange(min(followed.total, steps) * envs)
        for a, b in zip(followed.bounds(cells), rebuilt.bounds(cells), strict=True):
            difference = a - b
            offset = followed.total - rebuilt.total
            closed = followed.finished(cells)
            assert (difference[closed] == offset).all()
        np.testing.assert_array_equal(followed.finished(cells), rebuilt.finished(cells))


def test_env_is_needed_and_checked(experience):
    data = experience("goal", n_envs=1, steps=30)
    buffer = data.fill(make(data, None, seed=0))
    with pytest.raises(ValueError, match=r"call set_env\(env\) first"):
        buffer.sample(50)

    class Wrong:
        def env_method(self, *args, **kwargs):
            return [0.0]

    with pytest.raises(ValueError, match="compute_reward must return one reward per row"):
        buffer.set_env(Wrong())
    assert buffer.env is None
    buffer.set_env(GoalEnv())
    with pytest.raises(ValueError, match="assign it: buffer.env = env"):
        buffer.set_env(GoalEnv())


class Distance(GoalEnv):
    """Another reward function."""

    def env_method(self, name, achieved, desired, infos, indices=None):
        return [-np.abs(achieved - desired).sum(-1)]


class Closed(GoalEnv):
    """Environments in other processes, which have ended."""

    def env_method(self, *args, **kwargs):
        raise EOFError


def stored(buffer):
    """The rewards of all rows, oldest first, and the distances to their goals."""
    rows = buffer.contents()
    achieved, desired = (rows["next_observations"][key] for key in ("achieved_goal", "desired_goal"))
    return rows["rewards"], np.abs(achieved - desired).sum(-1)


@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("old", [GoalEnv, Closed])
def test_stored_rewards_follow_another_reward_function(experience, old, loaded, saving):
    data = experience("goal", n_envs=2, steps=70)
    buffer = data.fill(make(data, old(), 60, optimize_memory_usage=saving, seed=0))  # a full ring
    if loaded:
        kept, buffer = buffer.state_dict(), make(data, Distance(), 60, optimize_memory_usage=saving, seed=0)
        with pytest.warns(UserWarning, match=r"of 60 rewards .* compute_reward\(\).* All have been recomputed"):
            buffer.load_state_dict(kept)
    else:
        with pytest.warns(UserWarning, match=r"of 60 rewards .* compute_reward\(\).* All have been recomputed"):
            buffer.env = Distance()
    rewards, distances = stored(buffer)
    np.testing.assert_allclose(rewards, -distances, rtol=1e-6)
    batch = buffer.sample(500)
    goals, reached = batch.next_observations["desired_goal"], batch.next_observations["achieved_goal"]
    torch.testing.assert_close(batch.rewards, -(goals - reached).abs().sum(-1, keepdim=True))


@pytest.mark.parametrize("loaded", [False, True])
def test_rewards_with_another_part_stay_as_long_as_the_function_does(experience, loaded):
    """An environment may add to compute_reward() what no goal decides, such as a cost of its actions."""
    data = experience("goal", n_envs=2, steps=70)
    for row in data.rows:
        row["reward"] = row["reward"] - 0.25
    buffer = data.fill(make(data, GoalEnv(), seed=0))
    before = stored(buffer)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if loaded:
            kept, buffer = buffer.state_dict(), make(data, GoalEnv(), seed=0)
            buffer.load_state_dict(kept)
        buffer.env = GoalEnv()
    np.testing.assert_array_equal(stored(buffer)[0], before)
    if loaded:
        other = make(data, Distance(), seed=0)
        with pytest.raises(ValueError, match=r"cannot be recomputed. Empty the buffer first"):
            other.load_state_dict(kept)
        assert other.size() == 0
    else:
        here = buffer.env
        with pytest.raises(ValueError, match=r"cannot be recomputed. Empty the buffer first"):
            buffer.env = Distance()
        assert buffer.env is here
        np.testing.assert_array_equal(stored(buffer)[0], before)
    kept = buffer.state_dict()
    kept["relabel/computed_rewards"] = kept["relabel/computed_rewards"][1:]
    with pytest.raises(ValueError, match="are no float32 numbers"):
        make(data, GoalEnv()).load_state_dict(kept)


def test_a_model_set_to_an_environment_with_another_reward_function(tmp_path):
    class Far(BitFlippingEnv):
        def compute_reward(self, achieved_goal, desired_goal, info):
            return 3.0 * super().compute_reward(achieved_goal, desired_goal, info)

        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, 3.0 * reward, *rest

    settings = {"replay_buffer_class": HerReplayBuffer, "learning_starts": 100, "policy_kwargs": {"net_arch": [4]}}
    model = DQN("MultiInputPolicy", BitFlippingEnv(4), **settings, device="cpu", seed=0).learn(40)
    model.save_replay_buffer(tmp_path / "buffer")
    other = DQN("MultiInputPolicy", Far(4), **settings, device="cpu", seed=0)
    with pytest.warns(UserWarning, match="All have been recomputed"):
        other.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    with pytest.warns(UserWarning, match="All have been recomputed"):
        model.set_env(Far(4))
    for one in (other, model):
        assert set(np.unique(one.replay_buffer.contents()["rewards"])) <= {-3.0, 0.0}
    model.replay_buffer.rewards[0] = 7.0
    env = model.get_env()
    with pytest.raises(ValueError, match="cannot be recomputed"):
        model.set_env(BitFlippingEnv(4))
    assert model.get_env() is env
    assert model.replay_buffer.env is env


def test_attributes_and_arguments(experience, goal_env):
    data = experience("goal")
    buffer = make(data, goal_env, goal_selection_strategy=GoalSelectionStrategy.FINAL, copy_info_dict=True)
    assert buffer.env is goal_env
    buffer.env = other = type(goal_env)()
    assert buffer.relabel.env is other
    assert buffer.goal_selection_strategy is GoalSelectionStrategy.FINAL
    assert (buffer.n_sampled_goal, buffer.her_ratio, buffer.copy_info_dict) == (4, 0.8, True)
    assert buffer.infos.shape == (100, 2)
    with pytest.raises(ValueError, match=r"goal_selection_strategy must be one of \['future', 'final', 'episode'\]"):
        make(data, goal_env, goal_selection_strategy="past")
    with pytest.raises(ValueError, match="n_sampled_goal must be at least 0, got -1"):
        make(data, goal_env, n_sampled_goal=-1)
    with pytest.raises(ValueError, match="needs a Dict observation space with the keys"):
        HerReplayBuffer(10, spaces.Dict({"observation": spaces.Discrete(2)}), data.action_space, goal_env)
