"""Every format: what was written is what is read, and what cannot be learned from is refused with its row."""

import itertools
import json
import pickle
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import SAC
from polyak.envs import make_vec_env
from polyak.experience import Column, Dataset, DatasetError, ReplayBuffer, collect
from polyak.experience.datasets.formats import FORMATS
from tests.experience.recorded import OBSERVED, Told, recorded, stacked
from tests.pairs import pairwise
from tests.tolerance import bound

NEEDS = {"npz": [], "csv": ["pandas"], "parquet": ["pandas", "pyarrow"], "minari": ["minari", "h5py", "PIL"]}
PEERS = Path(__file__).parents[1] / "compat" / "data"
NAMES = {"npz": "a.npz", "csv": "a.csv", "parquet": "a.parquet", "minari": "a-v0"}


@pytest.fixture(autouse=True)
def own_minari(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def needs(*formats: str) -> None:
    for name in formats:
        for package in NEEDS[name]:
            pytest.importorskip(package)


# -- round trips -------------------------------------------------------------------------------------------------------


def test_the_table_names_what_can_be_written() -> None:
    assert {name for name, kind in FORMATS.items() if kind.write is not None} == set(NEEDS)


@pytest.mark.parametrize(
    ("kind", "first", "second"), pairwise(itertools.product(["box", "mixed", "discrete"], NEEDS, NEEDS))
)
def test_round_trips_keep_every_transition(kind, first, second, tmp_path):
    needs(first, second)
    told = recorded(kind)
    dataset = told.dataset("with last", env_id="Pendulum-v1")
    once = Dataset.load(dataset.save(tmp_path / "one" / NAMES[first], format=first))
    twice = Dataset.load(once.save(tmp_path / "two" / NAMES[second], format=second))
    for found in (once, twice):
        told.check(found.transitions())
        np.testing.assert_array_equal(found.ends, dataset.ends)
        np.testing.assert_array_equal(found.terminated, dataset.terminated)
    if "csv" not in (first, second):  # which keeps neither spaces nor types
        assert (twice.observation_space, twice.action_space) == (dataset.observation_space, dataset.action_space)
        assert twice.env_id == "Pendulum-v1"
        assert twice.rewards.dtype == dataset.rewards.dtype == np.float64
        for key, array in twice.observations.items() if kind == "mixed" else [(None, twice.observations)]:
            assert array.dtype == (dataset.observations if key is None else dataset.observations[key]).dtype


@pytest.mark.parametrize("name", NEEDS)
def test_doubles_are_kept_to_the_last_bit(name, tmp_path):
    needs(name)
    rng = np.random.default_rng(0)
    told = recorded("box")
    for row in told.rows:
        row["reward"] = float(rng.normal() * 10.0 ** rng.integers(-30, 30))
    told.check(Dataset.load(told.dataset("with last").save(tmp_path / NAMES[name], format=name)).transitions())


@pytest.mark.parametrize("name", NEEDS)
def test_single_steps_in_any_order_are_kept(name, tmp_path):
    needs(name)
    told = recorded("box")
    shuffled = Told("box", [told.rows[i] for i in np.random.default_rng(1).permutation(len(told.rows))])
    path = shuffled.dataset("with next").save(tmp_path / NAMES[name], format=name)
    shuffled.check(Dataset.load(path).transitions(), ends=False)


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_what_was_collected_is_kept(name, env, tmp_path):
    needs(name)
    dataset = collect(env, None, 450, seed=0)
    found = Dataset.load(dataset.save(tmp_path / NAMES[name], format=name)).for_env(env)
    assert (found.observation_space, found.action_space) == (dataset.observation_space, dataset.action_space)
    for ours, theirs in zip(found.transitions()[:6], dataset.transitions()[:6], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", NEEDS)
def test_nested_names_and_pictures_are_kept(name, tmp_path):
    """Those that a lossy picture format would blur."""
    needs(name)
    rng = np.random.default_rng(0)
    seen = {
        "camera/left": rng.integers(0, 255, (9, 3, 32, 32)).astype(np.uint8),
        "camera/right": rng.normal(size=(9, 2)).astype(np.float32),
        "speed": rng.normal(size=(9, 1)),
    }
    dataset = Dataset(seen, rng.integers(0, 3, 8), rng.normal(size=8), [0] * 7 + [1])
    found = Dataset.load(dataset.save(tmp_path / NAMES[name], format=name), action_space=spaces.Discrete(3))
    assert found.observations.keys() == seen.keys()
    for key, array in seen.items():
        np.testing.assert_array_equal(found.observations[key], array)


def test_a_file_is_known_by_what_it_holds(tmp_path):
    needs(*NEEDS)
    told = recorded("box")
    for name in ("npz", "csv", "parquet"):
        path = told.dataset("with last").save(tmp_path / NAMES[name])
        told.check(Dataset.load(path.rename(tmp_path / "data.bin")).transitions())
    assert told.dataset("with last").save(tmp_path / "plain") == tmp_path / "plain.npz"
    with pytest.raises(ValueError, match="none of the suffixes"):
        told.dataset("with last").save(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match="format='excel' is none of"):
        told.dataset("with last").save(tmp_path / "a", format="excel")
    with pytest.raises(ValueError, match="is none of"):
        told.dataset("with last").save(tmp_path / "a", format="d4rl")


# -- arrays of others --------------------------------------------------------------------------------------------------

CALLED = {
    "gym": ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations"),
    "short": ("obs", "act", "rew", "dones", "truncated", "next_obs"),
    "letters": ("s", "a", "r", "terminated", "truncations", "s_next"),
}


@pytest.mark.parametrize("names", CALLED.values(), ids=CALLED)
@pytest.mark.parametrize("kind", ["box", "mixed"])
def test_plain_npz_files_are_read_under_the_usual_names(names, kind, tmp_path):
    told = recorded(kind)
    flat = told.arrays()
    arrays: dict[str, Any] = {}
    order = ("observations", "actions", "rewards", "terminations", "truncations", "next_observations")
    for name, meaning in zip(names, order, strict=True):
        value = flat[meaning]
        if name == "dones":
            value = value | flat["truncations"]
        arrays |= {f"{name}/{key}": a for key, a in value.items()} if isinstance(value, dict) else {name: value}
    arrays["log_probs"] = np.array([row["log_prob"] for row in told.rows])
    arrays["version"] = np.array(3)
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with pytest.warns(UserWarning, match=r"\['version'\] are left out"):
        told.check(Dataset.load(tmp_path / "a.npz").transitions())


def test_dones_alone_are_taken_for_terminal_states_with_a_warning(tmp_path):
    flat = recorded("box").arrays()
    flat["dones"] = flat.pop("terminations") | flat.pop("truncations")
    np.savez(tmp_path / "a.npz", **flat)
    with pytest.warns(UserWarning, match="does not distinguish time limits from terminal states"):
        dataset = Dataset.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(dataset.terminations, flat["dones"])


def table(told: Told, successors: bool = True) -> Any:
    pandas = pytest.importorskip("pandas")
    flat = told.arrays()
    numbers = np.repeat(np.arange(len(told.lengths)), told.lengths)
    columns = {
        "traj": [f"run {n:02d}" for n in numbers],
        "t": np.concatenate([np.arange(length) for length in told.lengths]),
        **{f"obs_{i}": flat["observations"][:, i].astype(float) for i in range(3)},
        **{f"action_{i}": flat["actions"][:, i].astype(float) for i in range(2)},
        "reward": flat["rewards"],
        "terminated": flat["terminations"].astype(int),
        "log_probs": np.array([row["log_prob"] for row in told.rows]).astype(float),
    }
    if successors:
        columns |= {f"next_obs_{i}": flat["next_observations"][:, i].astype(float) for i in range(3)}
    return pandas.DataFrame(columns)


def test_rows_of_a_table_are_put_in_order(tmp_path):
    """Shuffled rows of numbered episodes become these again; a table with semicolons is one, too."""
    told = recorded("box")
    shuffled = table(told).sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "a.csv", index=False, sep=";")
    dataset = Dataset.load(tmp_path / "a.csv")
    told.check(dataset.transitions())
    assert dataset.lengths.tolist() == told.lengths


def test_a_table_without_successors_loses_only_the_steps_before_a_cut(tmp_path):
    told = recorded("box")
    table(told, successors=False).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(UserWarning, match="left out, the first in row"):
        dataset = Dataset.load(tmp_path / "a.csv")
    assert len(dataset) == len(told.rows) - told.terminated.count(False)


def test_rows_of_a_table_that_contradict_each_other_are_refused(tmp_path):
    frame = table(recorded("box"))
    path = tmp_path / "a.csv"

    def refused(changed: Any, message: str) -> None:
        changed.to_csv(path, index=False)
        with pytest.raises(DatasetError, match=message):
            Dataset.load(path)

    pandas = pytest.importorskip("pandas")
    twice = pandas.concat([frame, frame.iloc[[4]]])
    refused(twice, f"row {len(frame)}: step {frame.t[4]} of episode run 00 is in row 4, too")
    refused(frame.drop(columns=["next_obs_0", "next_obs_1", "next_obs_2"]).drop(index=1), "follows step 0 .row 0.")
    early = frame.copy()
    early.loc[0, "terminated"] = 1
    refused(early, "row 1: episode run 00 continues after its end in row 0")
    refused(frame.assign(reward=frame.reward.where(frame.index != 5)), r"row 5 .*rewards is nan")
    refused(frame.assign(action_0="left"), "row 0: the column 'action_0' is 'left', but actions must be numbers")
    refused(frame.drop(columns="obs_1"), r"columns obs_\* up to \(2,\), but none of \(1,\)")
    refused(frame.drop(columns="reward"), "has no rewards")
    refused(frame.drop(columns=["terminated", "traj", "t"]), "does not say where episodes end")
    refused(frame.assign(r=0.0), r"rewards twice, as \['reward', 'r'\]")
    refused(frame.iloc[:0], "has no rows")
    interleaved = frame.sort_values("t", kind="stable").reset_index(drop=True)
    interleaved.loc[20, "action_1"] = 7.0
    interleaved.to_csv(path, index=False)
    with pytest.raises(DatasetError, match=r"row 20 \("):
        Dataset.load(path, action_space=spaces.Box(-1, 1, (2,)))


# -- HDF5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successors", [True, False])
def test_d4rl_files_are_read(successors, tmp_path):
    h5py = pytest.importorskip("h5py")
    told = recorded("box")
    flat = told.arrays()
    with h5py.File(tmp_path / "halfcheetah.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards"):
            file[name] = flat[name]
        file["terminals"] = flat["terminations"]
        file["timeouts"] = flat["truncations"] | flat["terminations"]  # a file in which both are set
        file["infos/action_log_probs"] = np.array([row["log_prob"] for row in told.rows])
        file["infos/broken"] = np.full(len(told.rows), np.nan)
        file["metadata/algorithm"] = np.bytes_("SAC")
        if successors:
            file["next_observations"] = flat["next_observations"]
    with pytest.warns(UserWarning, match=r"\['broken'\] are left out"):
        dataset = Dataset.load(tmp_path / "halfcheetah.hdf5")
    log_probs = dataset.columns["action_log_probs"]
    if successors:
        told.check(dataset.transitions()._replace(columns={"log_probs": log_probs}))
    else:
        kept = ~flat["truncations"]
        assert len(dataset) == kept.sum()
        np.testing.assert_array_equal(dataset.actions, flat["actions"][kept])
        np.testing.assert_array_equal(log_probs, [row["log_prob"] for row in told.rows if not row["truncated"]])


@pytest.mark.parametrize("composed", [False, True])
def test_d3rlpy_files_are_read(composed, tmp_path):
    h5py = pytest.importorskip("h5py")
    told = recorded("box")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"], file["version"] = len(told.lengths), "2.1"
        for number in range(len(told.lengths)):
            rows = told.of_episode(number)
            seen = np.stack([row["now"] for row in rows])
            names = {f"observations_{number}_0": seen, f"observations_{number}_1": 2 * seen}
            for name, array in names.items() if composed else [(f"observations_{number}", seen)]:
                file[name] = array
            file[f"actions_{number}"] = np.array([[number % 3] for _ in rows])
            file[f"rewards_{number}"] = np.array([[row["reward"]] for row in rows])
            file[f"terminated_{number}"] = rows[-1]["terminated"]
    if any(length == 1 and not end for length, end in zip(told.lengths, told.terminated, strict=True)):
        pytest.fail("an episode that d3rlpy itself could not keep")
    with pytest.warns(UserWarning, match="left out"):
        dataset = Dataset.load(tmp_path / "a.h5")
    kept = [row for row in told.rows if not row["truncated"]]
    np.testing.assert_array_equal(dataset.rewards, [row["reward"] for row in kept])
    np.testing.assert_array_equal(dataset.terminated, told.terminated)
    assert dataset.action_space == spaces.Discrete(3)
    found = dataset.transitions().observations
    np.testing.assert_array_equal(found["0"] if composed else found, stacked([row["now"] for row in kept]))


def test_hdf5_of_something_else_is_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(DatasetError, match=r"HDF5 file with the keys \['weights'\]"):
        Dataset.load(tmp_path / "a.h5")


# -- Minari ------------------------------------------------------------------------------------------------------------


def test_minaris_own_datasets_are_read(tmp_path):
    """As its collector writes them: with an info of the reset, and found by id, folder and data file."""
    minari = pytest.importorskip("minari")
    needs("minari")
    from minari.data_collector import EpisodeBuffer

    told = recorded("box")
    buffers = []
    for number in range(len(told.lengths)):
        rows = told.of_episode(number)
        ends = np.array([[row["terminated"], row["truncated"]] for row in rows])
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=np.stack([*(row["now"] for row in rows), rows[-1]["then"]]),
                actions=np.stack([row["action"] for row in rows]),
                rewards=[row["reward"] for row in rows],
                terminations=ends[:, 0].tolist(),
                truncations=ends[:, 1].tolist(),
                infos={"policy": {"log_prob": np.array([0.0, *(row["log_prob"] for row in rows)])}},
            )
        )
    with pytest.warns(UserWarning, match="`author` is set to None"):
        minari.create_dataset_from_buffers(
            "box/told-v0",
            buffer=buffers,
            observation_space=OBSERVED["box"],
            action_space=told.dataset("with last").action_space,
        )
    root = tmp_path / "minari" / "box" / "told-v0"
    for place in ("box/told-v0", root, root / "data", root / "data" / "main_data.hdf5"):
        dataset = Dataset.load(place)
        told.check(dataset.transitions()._replace(columns={"log_probs": dataset.columns["policy_log_prob"]}))
        assert dataset.rewards.dtype == np.float64


def test_what_is_written_for_minari_is_read_by_it(tmp_path):
    minari = pytest.importorskip("minari")
    needs("minari")
    dataset = collect("Pendulum-v1", None, 250, seed=0)
    dataset.save(tmp_path / "minari" / "pendulum" / "random-v0", format="minari")
    theirs = minari.load_dataset("pendulum/random-v0")
    assert theirs.total_steps == 250
    assert theirs.recover_environment().spec.id == "Pendulum-v1"
    for ours, episode in zip(dataset.episodes(), theirs.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(ours.observations, episode.observations)
        np.testing.assert_array_equal(ours.actions, episode.actions)
        assert episode.truncations[-1]
    with pytest.raises(DatasetError, match="end in a version, such as random-v0"):
        dataset.save(tmp_path / "random", format="minari")
    with pytest.raises(FileExistsError, match="is a folder already"):
        dataset.save(tmp_path / "minari" / "pendulum" / "random-v0", format="minari")


# -- replay buffers ----------------------------------------------------------------------------------------------------


STORED = ("observations", "actions", "rewards", "next_observations", "dones")


def told_by(buffer: ReplayBuffer) -> list[tuple[Any, ...]]:
    """Rows of a full record of what was stored, sorted."""
    held = buffer.contents()
    columns = [held[name].reshape(held["rewards"].size, -1) for name in STORED]
    return sorted(map(tuple, np.concatenate(columns, axis=1).tolist()))


@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("size", [900, 240])
def test_a_models_experience_becomes_its_episodes(size, saving, tmp_path):
    """Of two environments, in a ring that has wrapped and in one that has not; from the model and from its files."""
    envs = make_vec_env("Pendulum-v1", 2)
    model = SAC("MlpPolicy", envs, buffer_size=size, learning_starts=1000, optimize_memory_usage=saving, seed=0)
    model.learn(500)
    dataset = Dataset.from_model(model)
    assert dataset.action_space == envs.action_space
    steps = size // 2 if size < 500 else 250
    assert len(dataset) == 2 * steps
    oldest = 250 - steps
    lengths = [*np.diff([oldest, *(end for end in (200,) if end > oldest), 250])]
    assert dataset.lengths.tolist() == [*lengths, *lengths]
    assert not dataset.terminated.any()
    assert np.abs(dataset.actions).max() > 1.5  # in the environment's units
    model.save(tmp_path / "model", include=["replay_buffer"])
    model.save_replay_buffer(tmp_path / "buffer")
    for path in ("model.zip", "buffer.pkl"):
        for ours, theirs in zip(
            Dataset.load(tmp_path / path).transitions()[:6], dataset.transitions()[:6], strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    again = ReplayBuffer(len(dataset), envs.observation_space, envs.action_space, "cpu")
    again.fill(dataset, model.policy.codec.from_env)
    ours, theirs = np.array(told_by(again)), np.array(told_by(model.replay_buffer))
    theirs[:, -1] = ours[:, -1]  # the newest rows, at which running episodes are cut
    np.testing.assert_allclose(ours, theirs, atol=bound(3, 2.0))


def test_what_a_file_of_a_model_lacks_is_told(tmp_path):
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0)
    with pytest.raises(DatasetError, match="the replay buffer is empty"):
        Dataset.from_model(model)
    model.save(tmp_path / "model")
    with pytest.raises(DatasetError, match="model without its replay buffer"):
        Dataset.load(tmp_path / "model.zip")
    with pytest.raises(DatasetError, match="has no replay buffer: collect"):
        Dataset.from_model(object())


def test_older_buffer_files_need_their_spaces(tmp_path):
    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=1000, seed=0).learn(50)
    model.save_replay_buffer(tmp_path / "new.pkl")
    with zipfile.ZipFile(tmp_path / "new.pkl") as new, zipfile.ZipFile(tmp_path / "old.pkl", "w") as old:
        for name in new.namelist():
            content = new.read(name)
            if name == "polyak.json":
                about = json.loads(content)
                del about["observation_space"], about["action_space"]
                content = json.dumps(about).encode()
            old.writestr(name, content)
    with pytest.raises(DatasetError, match="pass observation_space and action_space"):
        Dataset.load(tmp_path / "old.pkl")
    known = {"observation_space": model.observation_space, "action_space": model.action_space}
    ours = Dataset.load(tmp_path / "old.pkl", **known)
    np.testing.assert_array_equal(ours.actions, Dataset.load(tmp_path / "new.pkl").actions)


def test_columns_of_a_buffer_go_along():
    space, actions = OBSERVED["box"], spaces.Discrete(3, start=5)
    buffer = ReplayBuffer(20, space, actions, "cpu", n_envs=2, columns=[Column("masks", np.bool_, (3,))])
    rng = np.random.default_rng(0)
    told = []
    for t in range(7):
        now, then = rng.normal(size=(2, 2, 3)).astype(np.float32)
        chosen, masks = rng.integers(0, 3, (2, 1)), rng.random((2, 3)) < 0.5
        done = np.array([t == 3, False])
        infos = [{"TimeLimit.truncated": t == 3}, {}]
        buffer.add(now, then, chosen, np.full(2, float(t)), done, infos, extras={"masks": masks})
        told.append((now, then, chosen, masks))
    dataset = Dataset.from_buffer(buffer)
    found = dataset.transitions()
    for i, (now, then, chosen, masks) in enumerate(told):
        for env in range(2):
            row = env * 7 + i
            np.testing.assert_array_equal(found.observations[row], now[env])
            np.testing.assert_array_equal(found.next_observations[row], then[env])
            assert found.actions[row] == chosen[env, 0] + 5
            np.testing.assert_array_equal(found.columns["masks"][row], masks[env])
    assert not dataset.terminated.any()


@pytest.mark.parametrize("name", ["sac", "dqn_her", "thrifty"])
def test_stable_baselines3s_pickles_hold_what_a_model_would_load(name):
    dataset = Dataset.load(PEERS / f"{name}_replay.pkl")
    if name == "thrifty":  # of which nothing is noted
        assert len(dataset) == 20
        return
    expected = np.load(PEERS / "expected.npz")
    actions, rewards = (expected[f"{name}_replay/{what}"][:, 0] for what in ("actions", "rewards"))
    assert len(dataset) == len(actions)
    if name == "sac":
        np.testing.assert_allclose(dataset.actions, 2 * actions, atol=bound(3, 2.0))
        np.testing.assert_array_equal(dataset.rewards, rewards)
    else:  # a ring that has wrapped
        assert sorted(zip(dataset.actions, dataset.rewards, strict=True)) == sorted(
            zip(actions[:, 0], rewards, strict=True)
        )
        assert set(dataset.observations) == {"observation", "achieved_goal", "desired_goal"}
        assert set(dataset.lengths[1:-1]) <= {1, 2, 3, 4}


def test_pickles_of_anything_else_are_refused(tmp_path):
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="trust=True"):
        Dataset.load(tmp_path / "a.pkl")
    np.savez(tmp_path / "a.npz", observations=np.array([Evil()], object))
    with pytest.raises(DatasetError, match="cannot be read"):
        Dataset.load(tmp_path / "a.npz")
    assert not (tmp_path / "touched").exists()


# -- files that are broken or not there --------------------------------------------------------------------------------


def test_what_is_not_there_or_no_dataset_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Dataset.load(tmp_path / "nothing.npz")
    for content in (b"", b"\x00\x01\x02", b"one line of text", np.random.default_rng(0).bytes(500)):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(DatasetError, match="in none of the formats"):
            Dataset.load(tmp_path / "a")
    with pytest.raises(DatasetError, match="in none of the formats"):
        Dataset.load(tmp_path)


def test_damaged_files_of_our_own_are_refused(tmp_path):
    path = recorded("box").dataset("with last").save(tmp_path / "a.npz")
    whole = path.read_bytes()

    def changed(name: str, content: Any) -> None:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "b.npz", "w") as new:
            for member in old.namelist():
                if member != name:
                    new.writestr(member, old.read(member))
                elif content is not None:
                    with new.open(member, "w") as file:
                        np.save(file, content)

    for name, content in {
        "ends.npy": np.array([3, 2]),
        "rewards.npy": np.zeros(3),
        "terminated.npy": None,
        "observations.npy": np.zeros((4, 3), np.float32),
    }.items():
        changed(name, content)
        for in_memory in (True, False):
            with pytest.raises(DatasetError, match="is damaged"):
                Dataset.load(tmp_path / "b.npz", in_memory=in_memory)
    for length in (100, len(whole) // 2, len(whole) - 10):
        (tmp_path / "b.npz").write_bytes(whole[:length])
        with pytest.raises(DatasetError):
            Dataset.load(tmp_path / "b.npz")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    dataset = recorded("box").dataset("with last")
    path = dataset.save(tmp_path / "a.npz")
    before = path.read_bytes()
    monkeypatch.setattr("polyak.experience.datasets.formats.npz._write_array", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dataset.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# -- in the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["box", "mixed"])
def test_arrays_can_stay_in_the_file(kind, tmp_path):
    told = recorded(kind, episodes=60)
    path = told.dataset("with last").save(tmp_path / "a.npz")
    dataset = Dataset.load(path, in_memory=False)
    told.check(dataset.transitions())
    arrays = [*dataset.observations.values()] if kind == "mixed" else [dataset.observations]
    for array in arrays:
        assert isinstance(array.base, np.memmap)
        assert array.flags.aligned
        assert not array.flags.writeable
    path.unlink()  # what is mapped stays
    told.check(dataset.transitions())
    assert not isinstance(Dataset.load(told.dataset("with last").save(path)).rewards.base, np.memmap)


def test_a_minari_folder_may_be_named_relative_to_where_one_is(tmp_path, monkeypatch):
    needs("minari")
    monkeypatch.chdir(tmp_path)
    dataset = collect("Pendulum-v1", None, 20, seed=0)
    assert dataset.save("pendulum/random-v0", format="minari") == Path("pendulum/random-v0")
    assert len(Dataset.load("pendulum/random-v0")) == 20
    assert sorted(path.name for path in Path("pendulum").iterdir()) == ["random-v0"]


def test_without_a_network_an_unknown_minari_id_is_an_error_at_once(monkeypatch):
    """Neither is anything downloaded nor is it tried again and again."""
    minari = pytest.importorskip("minari")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "MINARI_REMOTE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(minari, "download_dataset", None)
    with pytest.raises(DatasetError, match=r"'D4RL/pen/human-v2': .*minari.* has no dataset of this id.*is not found"):
        Dataset.load("D4RL/pen/human-v2")


def test_what_minari_says_of_an_id_that_it_does_not_have_is_passed_on(monkeypatch):
    minari = pytest.importorskip("minari")

    def refuse(name):
        raise ValueError(f"Couldn't find any version for dataset {name} in the remote Farama server.")

    monkeypatch.setenv("MINARI_REMOTE", "gcp://somewhere")
    monkeypatch.setattr(minari, "download_dataset", refuse)
    with pytest.raises(
        DatasetError, match="cannot be downloaded: Couldn't find any version for dataset D4RL/pen/wrong"
    ):
        Dataset.load("D4RL/pen/wrong-v2")
