"""Datasets against a plain list of what happened: every way to make one, everything read from it, every refusal."""

import itertools
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs import FakeImageEnv, VecNormalize, make_vec_env
from polyak.experience import Dataset, DatasetError, Hindsight, ReplayBuffer, collect
from polyak.experience.datasets import checks
from tests.experience.recorded import ACTIONS, Told, judge, recorded
from tests.pairs import pairwise
from tests.tolerance import bound
from tests.worlds import World

# -- making one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["box", "mixed", "discrete"])
@pytest.mark.parametrize("form", ["with last", "with next"])
def test_flat_arrays_become_the_episodes_that_they_were(kind, form):
    told = recorded(kind)
    dataset = told.dataset(form)
    assert len(dataset) == len(told.rows)
    assert dataset.n_episodes == len(told.lengths)
    np.testing.assert_array_equal(dataset.lengths, told.lengths)
    np.testing.assert_array_equal(dataset.terminated, told.terminated)
    told.check(dataset.transitions())


def test_without_successors_only_the_steps_before_a_cut_are_lost():
    told = recorded("box")
    with pytest.warns(UserWarning, match="left out, the first in row") as caught:
        dataset = told.dataset("alone")
    cut = np.cumsum(told.lengths)[~np.array(told.terminated)] - 1
    assert f"{len(cut)} steps" in str(caught[0].message)
    kept = Told("box", [row for i, row in enumerate(told.rows) if i not in set(cut.tolist())])
    assert len(dataset) == len(kept.rows)
    told_terminal = [row["terminated"] for row in kept.rows]
    np.testing.assert_array_equal(dataset.terminations, told_terminal)
    found = dataset.transitions()
    inner = ~np.array(told_terminal)  # what follows a terminal state is not known, and never looked at
    for name, theirs in kept.arrays().items():
        ours = getattr(found, name)
        rows = inner if name == "next_observations" else slice(None)
        if name != "truncations":
            np.testing.assert_array_equal(ours[rows], theirs[rows])


def test_a_shuffled_table_is_a_dataset_of_single_steps():
    told = recorded("box")
    order = np.random.default_rng(1).permutation(len(told.rows))
    shuffled = Told("box", [told.rows[i] for i in order])
    dataset = shuffled.dataset("with next")
    shuffled.check(dataset.transitions(), ends=False)
    np.testing.assert_array_equal(dataset.terminations, [row["terminated"] for row in shuffled.rows])
    assert dataset.n_episodes > len(told.lengths)


def test_the_last_row_is_cut_off_if_it_is_not_terminal():
    dataset = Dataset(np.zeros((4, 2)), np.array([[0.0], [1.0], [0.5]]), [1, 2, 3], [False] * 3)
    assert (dataset.n_episodes, dataset.truncations.tolist()) == (1, [False, False, True])


def test_flags_and_rewards_may_be_columns_of_numbers():
    dataset = Dataset(np.zeros((4, 2)), np.array([[0.0], [1.0], [0.5]]), [[1], [2], [3]], [[0.0], [0.0], [1.0]])
    assert dataset.terminations.tolist() == [False, False, True]
    assert dataset.rewards.tolist() == [1, 2, 3]


def test_composed_observations_are_named_by_their_parts():
    told = recorded("box")
    flat = told.arrays()
    camera = {"left": flat["observations"], "right": 2 * flat["observations"]}
    following = {"left": flat["next_observations"], "right": 2 * flat["next_observations"]}
    position = np.arange(len(told.rows))
    dataset = Dataset(
        {"camera": camera, "place": (position,)},
        flat["actions"],
        flat["rewards"],
        flat["terminations"],
        flat["truncations"],
        next_observations={"camera": following, "place": (position + 1,)},
    )
    assert set(dataset.observations) == {"camera/left", "camera/right", "place/0"}
    assert dataset.n_episodes == len(told.lengths)
    box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    nested = {
        "camera": spaces.Dict({"left": box, "right": box}),
        "place": spaces.Tuple([spaces.Discrete(len(position) + 1)]),
    }
    again = Dataset.from_parts(dataset.parts, spaces.Dict(nested), ACTIONS)
    assert again.observation_space == spaces.Dict(
        {"camera/left": box, "camera/right": box, "place/0": spaces.Discrete(len(position) + 1)}
    )


def test_pictures_are_turned_as_models_see_them():
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (4, 36, 40, 3)).astype(np.uint8)
    dataset = Dataset(pictures, np.arange(3), np.zeros(3), [0, 0, 1])
    assert dataset.observation_space == spaces.Box(0, 255, (3, 36, 40), np.uint8)
    np.testing.assert_array_equal(dataset.observations, pictures.transpose(0, 3, 1, 2))
    assert np.shares_memory(dataset.observations, pictures)


# -- reading it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["box", "mixed", "discrete"])
def test_episodes_chunks_and_single_rows_are_views_of_the_same(kind):
    told = recorded(kind)
    dataset = told.dataset("with last")
    start = 0
    for number, episode in enumerate(dataset.episodes()):
        rows = told.rows[start : start + told.lengths[number]]
        assert len(episode.actions) == len(rows) == len(episode.rewards)
        for t, row in enumerate([*rows, None]):
            expected = rows[-1]["then"] if row is None else row["now"]
            assert same(entry(episode.observations, t), expected)
        assert episode.terminated == rows[-1]["terminated"]
        np.testing.assert_array_equal(episode.columns["log_probs"], [row["log_prob"] for row in rows])
        start += len(rows)
    assert same(entry(dataset.episode(-1).observations, 0), entry(episode.observations, 0))
    with pytest.raises(IndexError):
        dataset.episode(len(told.lengths))
    pieces = list(dataset.chunks(7))
    told.check(type(pieces[0])(*(joined(column) for column in zip(*pieces, strict=True))))
    rows = np.random.default_rng(0).integers(0, len(dataset), 50)
    Told(kind, [told.rows[i] for i in rows]).check(dataset.transitions(rows))


def test_what_is_computed_from_episodes():
    told = recorded("box")
    dataset = told.dataset("with last")
    number, steps, returns = [], [], []
    for episode, length in enumerate(told.lengths):
        number += [episode] * length
        steps += range(length)
    np.testing.assert_array_equal(dataset.episode_numbers, number)
    np.testing.assert_array_equal(dataset.timesteps, steps)
    rewards = np.array([row["reward"] for row in told.rows])
    returns = [rewards[np.array(number) == episode].sum() for episode in range(len(told.lengths))]
    size = float(np.abs(rewards).sum())
    np.testing.assert_allclose(dataset.returns, returns, atol=bound(len(rewards), size, np.float64))
    for gamma in (1.0, 0.9, 0.0):
        left = [
            sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards)) if number[k] == number[t])
            for t in range(len(rewards))
        ]
        np.testing.assert_allclose(dataset.returns_to_go(gamma), left, atol=bound(len(rewards), size, np.float64))


def test_selected_episodes_are_whole():
    told = recorded("mixed")
    dataset = told.dataset("with last")
    best = np.argsort(dataset.returns)[-3:]
    expected = [row for e in best for row in told.of_episode(e)]
    Told("mixed", expected).check(dataset.select(best).transitions())
    flags = np.isin(np.arange(dataset.n_episodes), best)
    Told("mixed", [row for e in sorted(best) for row in told.of_episode(e)]).check(dataset.select(flags).transitions())
    with pytest.raises(DatasetError, match="at least one"):
        dataset.select([])


@pytest.mark.parametrize("count", [2, 3])
def test_each_episode_is_held_out_once(count):
    dataset = recorded("mixed").dataset("with last")
    parts = list(dataset.folds(count, seed=4))
    sizes = [held_out.n_episodes for _, held_out in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == dataset.n_episodes
    assert sorted(np.concatenate([held_out.rewards for _, held_out in parts])) == sorted(dataset.rewards)
    for (learned, held_out), (again, _) in zip(parts, dataset.folds(count, seed=4), strict=True):
        assert sorted(np.concatenate([learned.rewards, held_out.rewards])) == sorted(dataset.rewards)
        np.testing.assert_array_equal(learned.rewards, again.rewards)
    assert any(
        len(a.rewards) != len(b.rewards) or (a.rewards != b.rewards).any()
        for (_, a), (_, b) in zip(parts, dataset.folds(count, seed=5), strict=True)
    )
    for wrong in (1, dataset.n_episodes + 1):
        with pytest.raises(DatasetError, match="at most the number of episodes"):
            next(dataset.folds(wrong))


def test_the_sum_of_two_has_the_episodes_of_both():
    first, second = recorded("mixed", seed=1), recorded("mixed", seed=2)
    total = first.dataset("with last") + second.dataset("with next")
    Told("mixed", first.rows + second.rows).check(total.transitions())
    np.testing.assert_array_equal(total.lengths, first.lengths + second.lengths)
    with pytest.raises(DatasetError, match="differ in observation_space"):
        first.dataset("with last") + recorded("box").dataset("with last")


def test_spaces_come_from_the_data_or_from_an_environment():
    flat = recorded("box").arrays()
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    dataset = Dataset(*(flat[n] for n in names), next_observations=flat["next_observations"])
    assert dataset.observation_space == spaces.Box(-np.inf, np.inf, (3,), np.float32)
    assert dataset.action_space == spaces.Box(flat["actions"].min(0), flat["actions"].max(0))
    short = collect("Pendulum-v1", lambda obs: np.array([np.tanh(obs[0])]), 20, seed=0)
    own = Dataset(short.observations, short.actions, short.rewards, short.terminations)
    assert own.action_space != short.action_space
    for env in ("Pendulum-v1", gym.make("Pendulum-v1"), make_vec_env("Pendulum-v1", 2)):
        fitted = own.for_env(env)
        assert (fitted.observation_space, fitted.action_space) == (short.observation_space, short.action_space)
    assert own.for_env("Pendulum-v1").env_id == "Pendulum-v1"
    with pytest.raises(DatasetError, match=r"rows of shape \(3,\)"):
        own.for_env("CartPole-v1")


def test_choices_are_counted_from_the_data():
    def made(observations: Any, actions: Any) -> Dataset:
        return Dataset(np.asarray(observations), np.asarray(actions), np.zeros(3), [0, 0, 1])

    assert made(np.zeros((3, 2)), [0, 3, 1]).action_space == spaces.Discrete(4)
    assert made(np.zeros((3, 2)), [[0, 1], [2, 0], [1, 1]]).action_space == spaces.MultiDiscrete([3, 2])
    assert made([2, 0, 5], [0, 1, 0]).observation_space == spaces.Discrete(6)
    assert made(np.eye(3) > 0, [0, 1, 0]).observation_space == spaces.MultiBinary([3])
    with pytest.raises(DatasetError, match="below 0: pass action_space"):
        made(np.zeros((3, 2)), [0, -1, 1])


# -- refusals ----------------------------------------------------------------------------------------------------------


def broken(**changes: Any) -> Dataset:
    """Nine steps in three episodes, with something changed."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "observations": rng.normal(size=(9, 2)).astype(np.float32),
        "actions": np.linspace(-1, 1, 9, dtype=np.float32)[:, None],
        "rewards": np.arange(9.0),
        "terminations": [i % 3 == 2 for i in range(9)],
        "truncations": [False] * 9,
        "action_space": ACTIONS_1D,
    }
    for name, change in changes.items():
        arrays[name] = change(arrays.get(name)) if callable(change) else change
    return Dataset(**arrays)


ACTIONS_1D = spaces.Box(-1, 1, (1,), np.float32)


def put(value: float, *where: int) -> Any:
    def change(array: Any) -> Any:
        array = np.array(array)
        array[where] = value
        return array

    return change


REFUSALS = {
    "NaN in an observation": ({"observations": put(np.nan, 4, 1)}, r"row 4 \(episode 1, step 1\): observations is nan"),
    "infinite action": ({"actions": put(np.inf, 5, 0)}, r"row 5 \(episode 1, step 2\): actions is inf in entry 0"),
    "infinite reward": ({"rewards": put(-np.inf, 8)}, r"row 8 \(episode 2, step 2\): rewards is -inf"),
    "NaN in a column": ({"columns": {"log_probs": put(np.nan, 7)(np.zeros(9))}}, r"row 7 .*log_probs is nan"),
    "action out of bounds": ({"actions": put(1.5, 3, 0)}, r"row 3 \(episode 1, step 0\): the action \[1.5\] lies out"),
    "choice that is none": (
        {"actions": put(4, 6)(np.zeros(9, int)), "action_space": spaces.Discrete(3)},
        r"row 6 \(episode 2, step 0\): the action 4 lies outside of Discrete\(3\)",
    ),
    "observed choice that is none": (
        {"observations": put(7, 2)(np.zeros(9, int)), "observation_space": spaces.Discrete(3)},
        r"row 2 \(episode 0, step 2\): observations is 7, outside of Discrete\(3\)",
    ),
    "fewer rewards": ({"rewards": np.zeros(8)}, "rewards has 8 rows, but actions 9: rows from 8 on"),
    "more observations": ({"observations": np.zeros((11, 2))}, "observations has 11 rows, but there are 9 steps"),
    "columns too short": ({"columns": {"x": np.zeros(3)}}, "x has 3 rows, but actions 9"),
    "both flags": ({"truncations": put(True, 5)}, "row 5: terminations and truncations are both true"),
    "flags that are none": ({"terminations": put(0.5, 2)(np.zeros(9))}, "row 2: terminations is 0.5"),
    "nothing": (
        dict.fromkeys(("observations", "actions", "rewards", "terminations", "truncations"), np.zeros((0,))),
        "is empty",
    ),
    "words": ({"observations": np.full((9, 2), "a")}, "observations has the type <U1, but must hold numbers"),
    "objects": ({"actions": np.array([None] * 9)}, "actions has the type object"),
    "rewards of two": ({"rewards": np.zeros((9, 2))}, r"rewards has shape \(9, 2\)"),
    "flat actions": ({"actions": np.zeros(9), "action_space": None}, r"must be \[N, A\]"),
    "constant actions": ({"actions": np.zeros((9, 1)), "action_space": None}, "never vary in dimension 0"),
    "another shape": ({"observation_space": ACTIONS_1D}, r"rows of shape \(2,\), but the space is Box"),
    "keys": ({"observation_space": spaces.Dict({"a": ACTIONS_1D})}, r"has no keys, but the space the keys \['a'\]"),
    "fractions of choices": ({"action_space": spaces.MultiDiscrete([3])}, "it takes whole numbers"),
    "composed actions": ({"action_space": spaces.Dict({"a": ACTIONS_1D})}, "composed of others"),
    "successors of another shape": ({"next_observations": np.zeros((9, 3))}, r"shape \(9, 3\), but"),
    "a lone cut step": (
        {"truncations": put(True, 0), "terminations": [i % 3 == 2 for i in range(9)]},
        "row 0: an episode of one step that was cut short",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSALS.values(), ids=REFUSALS)
def test_bad_data_is_refused_with_its_row(changes, message):
    assert len(broken()) == 9
    with pytest.raises(DatasetError, match=message):
        broken(**changes)


def test_rows_are_those_that_were_given():
    """Also where steps are left out before it, and after an observation that no step was taken in."""
    cut = put(True, 2)([False] * 9)
    end = put(False, 2)([i % 3 == 2 for i in range(9)])
    with warnings.catch_warnings(), pytest.raises(DatasetError, match=r"row 7 \("):
        warnings.simplefilter("ignore")
        broken(terminations=end, truncations=cut, actions=put(3.0, 7, 0))
    with pytest.raises(DatasetError, match=r"after row 2 \(episode 0, step 2\): observations is nan"):
        broken(observations=put(np.nan, 3, 0)(np.zeros((12, 2))))
    with pytest.raises(DatasetError, match=r"row 3 \(episode 1, step 0\): observations is nan"):
        broken(observations=put(np.nan, 4, 0)(np.zeros((12, 2))))


def test_large_arrays_are_checked_piece_by_piece(monkeypatch):
    monkeypatch.setattr(checks, "CHUNK_BYTES", 24)
    with pytest.raises(DatasetError, match="row 8 .*observations is nan"):
        broken(observations=put(np.nan, 8, 1))
    with pytest.raises(DatasetError, match="row 7 .*lies outside"):
        broken(actions=put(1.5, 7, 0))


def test_actions_may_miss_their_bounds_by_rounding():
    space = spaces.Box(-2, 2, (1,), np.float32)
    beyond = float(np.nextafter(np.float32(2), np.float32(3)))
    broken(actions=put(beyond, 0, 0), action_space=space)
    with pytest.raises(DatasetError, match="lies outside"):
        broken(actions=put(2 + 1e-5, 0, 0), action_space=space)


# -- collecting --------------------------------------------------------------------------------------------------------


def test_what_is_collected_is_what_happened():
    """Played again in a second environment of the same seed."""
    dataset = collect("CartPole-v1", lambda obs: int(obs[2] > 0), 250, seed=3)
    assert len(dataset) == 250
    assert dataset.env_id == "CartPole-v1"
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=3)
    for episode in dataset.episodes():
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[t], obs)
            assert action == int(obs[2] > 0)
            obs, reward, terminated, _, _ = env.step(action)
            assert reward == episode.rewards[t]
        np.testing.assert_array_equal(episode.observations[-1], obs)
        assert episode.terminated == terminated
        obs, _ = env.reset()
    assert not dataset.terminated[-1]
    assert dataset.terminated[:-1].all()


def test_time_limits_are_truncations():
    dataset = collect("Pendulum-v1", None, 450, seed=0)
    assert dataset.lengths.tolist() == [200, 200, 50]
    assert not dataset.terminations.any()
    assert dataset.truncations.sum() == 3


def test_episodes_can_be_whole():
    dataset = collect(make_vec_env("CartPole-v1", 3), None, 50, seed=1, whole_episodes=True)
    assert dataset.terminated.all()
    assert len(dataset) >= 50


def test_several_environments_share_the_steps():
    envs = make_vec_env("CartPole-v1", 4)
    dataset = collect(envs, None, 203, seed=1)
    assert len(dataset) == 203
    assert dataset.observation_space == envs.observation_space
    again = collect(make_vec_env("CartPole-v1", 4), None, 203, seed=1)
    np.testing.assert_array_equal(dataset.observations, again.observations)
    np.testing.assert_array_equal(dataset.actions, again.actions)
    assert len(collect(make_vec_env("CartPole-v1", 4), None, 2)) == 2


class Nested(World):
    """Composed observations: a picture with channels last, and a pair."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 255, (36, 36, 3), np.uint8)}),
            "pair": spaces.Tuple([spaces.Discrete(9), spaces.Box(-1, 1, (2,), np.float32)]),
        }
    )
    length, truncates = 5, True

    def look(self) -> Any:
        picture = np.full((36, 36, 3), self.t, np.uint8)
        return {"camera": {"left": picture}, "pair": (self.t, np.full(2, self.t / 10, np.float32))}

    def act(self, action: Any) -> float:
        return float(self.t)


@pytest.mark.parametrize(
    "action_space", [spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3), spaces.Discrete(3, start=4)]
)
def test_composed_observations_are_collected_by_name(action_space):
    dataset = collect(Nested(action_space=action_space), None, 12, seed=0)
    assert dataset.lengths.tolist() == [5, 5, 2]
    assert set(dataset.observations) == {"camera/left", "pair/0", "pair/1"}
    assert dataset.observations["camera/left"].shape == (15, 3, 36, 36)
    np.testing.assert_array_equal(dataset.observations["pair/0"], [*range(6), *range(6), *range(3)])
    assert all(action_space.contains(action) for action in dataset.actions)
    assert dataset.for_env(Nested(action_space=action_space)).observation_space == dataset.observation_space


def test_a_model_sees_what_it_learned_from():
    """One that learned from normalised observations normalises those of other environments for itself."""
    from polyak import PPO

    model = PPO("MlpPolicy", VecNormalize(make_vec_env("CartPole-v1", 2)), n_steps=16, batch_size=16, seed=0)
    model.learn(64)
    dataset = collect("CartPole-v1", model, 40, deterministic=True, seed=5)
    seen = model.get_vec_normalize_env().normalize_obs(dataset.transitions().observations)
    np.testing.assert_array_equal(model.predict(seen, deterministic=True)[0], dataset.actions)
    with pytest.raises(ValueError, match="normalises what it brings"):
        collect(model.get_env(), model, 10)


def test_what_cannot_be_collected_is_refused():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        collect("CartPole-v1", None, 0)
    with pytest.raises(ValueError, match="policy=3 cannot act"):
        collect("CartPole-v1", 3, 5)
    with pytest.raises(DatasetError, match="actions are composed"):
        collect(Nested(action_space=spaces.Tuple([spaces.Discrete(2)])), None, 5)
    for wrong in (5, 0.5, [1, 1], np.nan):
        with pytest.raises(DatasetError, match=r"lies outside|are not 1 actions"):
            collect("CartPole-v1", lambda obs, wrong=wrong: wrong, 5)
    with pytest.raises(DatasetError, match="step 0 of environment 0: the action"):
        collect("Pendulum-v1", lambda obs: [np.nan], 5)
    assert collect(FakeImageEnv(channel_first=False), None, 3).observation_space.shape == (1, 84, 84)


# -- replaying it ------------------------------------------------------------------------------------------------------

GAMMA = 0.9


class Judge:
    def env_method(self, name: str, achieved: Any, desired: Any, infos: Any, indices: Any = None) -> Any:
        return [judge(achieved, desired)]


SAMPLERS = ("uniform", "prioritized", "rank_based")


@pytest.mark.parametrize(
    ("kind", "sampler", "n", "saving", "her"),
    pairwise(
        [
            *itertools.product(
                ["box", "mixed", "discrete"], ["uniform", "prioritized"], [1, 3], [False, True], [False]
            ),
            *itertools.product(["goal"], ["uniform", "prioritized", "rank_based"], [1, 3], [False, True], [True]),
        ]
    ),
)
def test_batches_are_the_transitions_of_the_dataset(kind, sampler, n, saving, her):
    told = recorded(kind, episodes=8)
    dataset = told.dataset("with last")
    buffer = ReplayBuffer(
        len(dataset),
        dataset.observation_space,
        dataset.action_space,
        "cpu",
        sampler=sampler,
        n_steps=n,
        gamma=GAMMA,
        optimize_memory_usage=saving,
        relabel=Hindsight(Judge()) if her else None,
        seed=0,
    )
    buffer.fill(dataset, encode=lambda actions: actions)
    assert buffer.full
    ends = np.cumsum(told.lengths)
    seen = set()
    for _ in range(30):
        batch = buffer.sample(64)
        for i in range(64):
            first = told.by_action[batch.actions[i].numpy().tobytes()]
            seen.add(first)
            window = range(first, min(first + n, int(ends[np.searchsorted(ends, first, side="right")])))
            last = told.rows[window[-1]]
            now, then = entry(batch.observations, i), entry(batch.next_observations, i)
            rewards = [told.rows[k]["reward"] for k in window]
            if her:
                goal = now.pop("desired_goal")
                assert same(goal, then.pop("desired_goal"))
                rewards = [judge(told.rows[k]["then"]["achieved_goal"], goal.numpy()).item() for k in window]
            assert (
                all(same(now[k], told.rows[first]["now"][k]) for k in now)
                if her
                else same(now, told.rows[first]["now"])
            )
            assert all(same(then[k], last["then"][k]) for k in then) if her else same(then, last["then"])
            total = sum(GAMMA**k * r for k, r in enumerate(rewards))
            assert batch.rewards[i].item() == pytest.approx(total, abs=bound(n + 4, size=4 * n))
            assert batch.dones[i].item() == float(last["terminated"])
        if sampler != "uniform":
            buffer.update_priorities(batch.indices, np.ones(64))
    assert len(seen) > 0.9 * len(dataset)


def test_a_buffer_in_pieces_and_its_contents(monkeypatch):
    told = recorded("mixed")
    dataset = told.dataset("with last")
    monkeypatch.setattr("polyak.experience.datasets.dataset.CHUNK", 5)
    buffer = ReplayBuffer(len(dataset) + 3, dataset.observation_space, dataset.action_space, "cpu")
    buffer.fill(dataset, encode=lambda actions: actions / 2, reward=lambda rewards: rewards * 2)
    assert (buffer.pos, buffer.full) == (len(dataset), False)
    held = buffer.contents()
    found = dataset.transitions()
    np.testing.assert_array_equal(held["actions"][:, 0], found.actions / 2)
    np.testing.assert_array_equal(held["rewards"][:, 0], found.rewards * 2)
    np.testing.assert_array_equal(held["dones"][:, 0], found.terminations | found.truncations)
    np.testing.assert_array_equal(held["timeouts"][:, 0], found.truncations)
    for name, ours in held["next_observations"].items():
        assert same(ours, found.next_observations[name])


def test_columns_go_along_and_lacking_ones_are_refused():
    from polyak.experience import Column

    dataset = recorded("box").dataset("with last")
    make = {"observation_space": dataset.observation_space, "action_space": dataset.action_space, "device": "cpu"}
    buffer = ReplayBuffer(len(dataset), columns=[Column("log_probs", np.float32)], **make)
    buffer.fill(dataset)
    np.testing.assert_array_equal(buffer.contents()["extras"]["log_probs"][:, 0], dataset.columns["log_probs"])
    with pytest.raises(ValueError, match=r"lacks the columns \['masks'\]"):
        ReplayBuffer(len(dataset), columns=[Column("masks", np.bool_, (3,))], **make).fill(dataset)
    with pytest.raises(ValueError, match="does not fit a buffer"):
        ReplayBuffer(len(dataset) - 1, **make).fill(dataset)
    goals = recorded("goal").dataset("with last")
    hindsight = Hindsight(Judge(), copy_info_dict=True)
    buffer = ReplayBuffer(len(goals), goals.observation_space, goals.action_space, "cpu", relabel=hindsight)
    with pytest.raises(ValueError, match="copy_info_dict"):
        buffer.fill(goals)


# -- comparing ---------------------------------------------------------------------------------------------------------


def entry(observations: Any, place: int) -> Any:
    if isinstance(observations, dict):
        return {key: array[place] for key, array in observations.items()}
    return observations[place]


def same(first: Any, second: Any) -> bool:
    if isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in second)
    return np.array_equal(np.ravel(first), np.ravel(second))


def joined(columns: Any) -> Any:
    if isinstance(columns[0], dict):
        return {key: np.concatenate([column[key] for column in columns]) for key in columns[0]}
    return np.concatenate(columns)
