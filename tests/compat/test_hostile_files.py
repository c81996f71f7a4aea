"""Files made to do harm, through every door by which a file comes in: none of them gets to do anything.

An audit hook watches while each is read. Nothing may be run, imported, or written.
"""

import base64
import io
import json
import os
import pickle
import stat
import struct
import sys
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak import DQN, PPO
from polyak.compat.sb3_face.files import names, writer
from polyak.envs import DummyVecEnv, VecNormalize
from tests.compat.hostile_pickles import MARK, payloads
from tests.compat.make_sb3_files import DATA
from tests.pairs import one_of_each

# -- the watch ---------------------------------------------------------------------------------------------------------

_NEVER = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn", "webbrowser.open")
_NEVER += ("exec", "import", "socket.connect", "ctypes.dlopen", "os.mkdir", "os.remove", "os.rename", "os.symlink")
_NEVER += ("shutil.rmtree", "shutil.copyfile", "os.chmod", "tempfile.mkstemp", "code.__new__", "function.__new__")
_seen: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in _NEVER:
        _seen.append(f"{event}{arguments!r:.200}")
    elif event == "open" and _writes(arguments[1], arguments[2]):
        _seen.append(f"open for writing: {arguments[0]!r}")


def _writes(mode: Any, flags: Any) -> bool:
    return bool(set(mode or "") & set("wax+")) or bool(
        isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[None]:
    """Fail if anything is run, imported or written within, or if it takes long or much memory."""
    global _seen
    _seen, begin = [], time.process_time()
    tracemalloc.start()
    try:
        yield
    finally:  # also when the file was refused: the assertion then takes the place of the refusal
        seen, _seen = _seen, None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not seen
        assert time.process_time() - begin < 20
        assert peak < 256 * 2**20


def test_the_watch_sees_what_harm_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "os.mkdir",
        "os.system",
        "builtins.open",
        "builtins.eval",
        "builtins.__import__",
        "an array of objects",
    ):
        sys.modules.pop("antigravity", None)
        monkeypatch.setattr("webbrowser.open", lambda url: None)
        with pytest.raises(AssertionError, match="assert not"), watched():
            pickle.loads(PAYLOADS[name])
    with pytest.raises(AssertionError, match="<"), watched():
        bytes(300 * 2**20)


# -- the doors ---------------------------------------------------------------------------------------------------------


def cartpole(**options: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]}, **options)


def load_model(path: Path) -> Any:
    return PPO.load(path, device="cpu")


def load_weights(path: Path) -> Any:
    return cartpole(device="cpu").set_parameters(path)


def load_statistics(path: Path) -> Any:
    return VecNormalize.load(path, DummyVecEnv([lambda: gym.make("Pendulum-v1")]))


def load_experience(path: Path) -> Any:
    return DQN("MlpPolicy", "CartPole-v1", buffer_size=32, device="cpu").load_replay_buffer(path)


@pytest.fixture(scope="module", autouse=True)
def doors_have_been_used(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported late is imported now, so that an import during a test is one that the file asked for."""
    folder = tmp_path_factory.mktemp("good")
    "".encode("raw_unicode_escape")
    load_model(DATA / "ppo.zip")
    load_weights(DATA / "ppo.zip")
    cartpole().save(folder / "m.zip")
    load_model(folder / "m.zip")
    load_statistics(DATA / "vecnormalize.pkl").save(folder / "n")
    load_statistics(folder / "n")
    load_experience(DATA / "thrifty_replay.pkl")
    for door in (load_model, load_weights, load_statistics, load_experience):
        (folder / "bad").write_bytes(b"\x80\x04cos\nsystem\n.")
        with pytest.raises(ValueError):
            door(folder / "bad")


def refused(door: Callable[[Path], Any], path: Path, match: str = "") -> None:
    """Check that a file is refused with a reason, and that nothing else happened."""
    before = sorted(path.parent.iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, RuntimeError, MemoryError), match=match) as caught, watched():
            door(path)
    assert len(str(caught.value)) > 20, "the error does not say what is wrong"
    assert not isinstance(caught.value, RecursionError)
    assert sorted(path.parent.iterdir()) == before, "something was left behind"


# -- pickles -----------------------------------------------------------------------------------------------------------

PAYLOADS = payloads(MARK)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test, which is also the working directory, where marks would appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "door"),  # each payload by one of the doors; both are slow
    [
        pytest.param(name, door, marks=[] if (number + place) % 2 == 0 else [pytest.mark.slow])
        for number, name in enumerate(PAYLOADS)
        for place, door in enumerate((load_statistics, load_experience))
    ],
)
def test_a_pickle(name: str, door: Callable[[Path], Any], inside: Path) -> None:
    code = PAYLOADS[name]
    (inside / "file.pkl").write_bytes(code if code[:1] == b"\x80" else b"\x80\x04" + code)
    refused(door, inside / "file.pkl")


ENTRIES = ("observation_space", "policy_class", "n_envs")


@pytest.mark.parametrize(
    ("name", "entry"),  # each payload in one entry, each entry with a third of the payloads; all pairs are slow
    [
        pytest.param(name, entry, marks=[] if (number + place) % len(ENTRIES) == 0 else [pytest.mark.slow])
        for number, name in enumerate(PAYLOADS)
        for place, entry in enumerate(ENTRIES)
    ],
)
def test_a_pickle_in_a_model(name: str, entry: str, inside: Path) -> None:
    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        data[entry] = entry_of(PAYLOADS[name])

    refused(load_model, rewritten(inside, change))


@pytest.mark.parametrize("name", one_of_each(PAYLOADS, *list(PAYLOADS)[::7]))
def test_a_pickle_that_can_be_done_without(name: str, inside: Path) -> None:
    """It is left out with one warning that says how to bring the value."""

    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        data["learning_rate"] = data["lr_schedule"] = data["not_known"] = entry_of(PAYLOADS[name])

    path = rewritten(inside, change)
    with pytest.warns(UserWarning, match="learning_rate.*custom_objects") as caught, watched():
        assert load_model(path).lr_schedule(1) == 3e-4
    assert len(caught) == 1
    with warnings.catch_warnings(), watched():
        warnings.simplefilter("error")
        load_weights(path)
        PPO.load(path, custom_objects={"learning_rate": 0.1})
    assert list(inside.iterdir()) == [path]


def entry_of(code: bytes) -> dict[str, str]:
    return {":type:": "<class 'harmless'>", ":serialized:": base64.b64encode(code).decode()}


# -- zips of the peer --------------------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def rewritten(folder: Path, change: Change, **options: Any) -> Path:
    """A good file in which ``change`` has edited the description and the other members."""
    with zipfile.ZipFile(DATA / "ppo.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    change(data, members)
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("data", members["data"] if "raw" in data else json.dumps(data))
        for name, content in members.items():
            if name != "data":
                archive.writestr(name, content)
    return path


def tensors(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def weights(members: dict[str, bytes]) -> dict[str, torch.Tensor]:
    return torch.load(io.BytesIO(members["policy.pth"]), weights_only=True)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)


def code_in_the_weights(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({"a": Evil()})


def code_in_an_optimizer(data: Any, members: dict[str, bytes]) -> None:
    members["policy.optimizer.pth"] = tensors({"state": {0: Evil()}, "param_groups": []})


def code_in_weights_of_the_old_kind(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({"a": Evil()}, _use_new_zipfile_serialization=False)


def weights_of_another_shape(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({name: torch.zeros(3, 3) for name in weights(members)})


def weights_that_are_whole_numbers(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({name: tensor.long() for name, tensor in weights(members).items()})


def weights_that_are_complex(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({name: tensor.to(torch.complex64) for name, tensor in weights(members).items()})


def weights_that_are_missing(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors({})


def weights_that_are_text(data: Any, members: dict[str, bytes]) -> None:
    members["policy.pth"] = tensors(dict.fromkeys(weights(members), "x"))


def an_optimizer_of_another_shape(data: Any, members: dict[str, bytes]) -> None:
    state = torch.load(io.BytesIO(members["policy.optimizer.pth"]), weights_only=True)
    for values in state["state"].values():
        values["exp_avg"] = torch.zeros(2)
    members["policy.optimizer.pth"] = tensors(state)


def an_optimizer_of_more_parameters(data: Any, members: dict[str, bytes]) -> None:
    state = torch.load(io.BytesIO(members["policy.optimizer.pth"]), weights_only=True)
    state["param_groups"][0]["params"] = list(range(1000))
    members["policy.optimizer.pth"] = tensors(state)


def no_optimizer(data: Any, members: dict[str, bytes]) -> None:
    del members["policy.optimizer.pth"]


WEIGHTS = [
    code_in_the_weights,
    code_in_an_optimizer,
    code_in_weights_of_the_old_kind,
    weights_of_another_shape,
    weights_that_are_complex,
    weights_that_are_missing,
    weights_that_are_text,
    an_optimizer_of_another_shape,
    an_optimizer_of_more_parameters,
    no_optimizer,
]


@pytest.mark.parametrize(
    ("change", "door"),  # each by one of the doors; both are slow
    [
        pytest.param(change, door, marks=[] if (number + place) % 2 == 0 else [pytest.mark.slow])
        for number, change in enumerate(WEIGHTS)
        for place, door in enumerate((load_model, load_weights))
    ],
    ids=lambda f: f.__name__,
)
def test_weights(change: Change, door: Callable[[Path], Any], inside: Path) -> None:
    refused(door, rewritten(inside, change))


def test_weights_of_another_type(inside: Path) -> None:
    refused(load_model, rewritten(inside, weights_that_are_whole_numbers), match="int64")


def no_number_of_environments(data: Any, members: dict[str, bytes]) -> None:
    data["n_envs"] = float("nan")


def actions_that_are_no_number(data: Any, members: dict[str, bytes]) -> None:
    space = writer.Object(("gymnasium.spaces.discrete", "Discrete"), {"n": float("nan"), "start": 0})
    data["action_space"] = entry_of(writer.dumps(space))


def bounds_of_two_shapes(data: Any, members: dict[str, bytes]) -> None:
    state = {"low": np.zeros(3, np.float32), "high": np.ones(4, np.float32), "dtype": np.dtype(np.float32)}
    data["observation_space"] = entry_of(writer.dumps(writer.Object(("gymnasium.spaces.box", "Box"), state)))


def a_space_that_is_none(data: Any, members: dict[str, bytes]) -> None:
    data["observation_space"] = [1, 2, 3]


def an_unknown_option(data: Any, members: dict[str, bytes]) -> None:
    data["policy_kwargs"] = {"net_arch": [4], "__class__": "os.system"}


def a_policy_by_name(data: Any, members: dict[str, bytes]) -> None:
    data["policy_class"] = "os.system"


def a_policy_that_is_a_number(data: Any, members: dict[str, bytes]) -> None:
    data["policy_class"] = 7


def bad_base64(data: Any, members: dict[str, bytes]) -> None:
    data["observation_space"] = {":type:": "x", ":serialized:": "~~~"}


def a_code_that_is_a_number(data: Any, members: dict[str, bytes]) -> None:
    data["observation_space"] = {":type:": "x", ":serialized:": 7}


def gamma_out_of_range(data: Any, members: dict[str, bytes]) -> None:
    data["gamma"] = 1e9


def no_description(data: Any, members: dict[str, bytes]) -> None:
    data.clear()


DESCRIPTIONS = [
    no_number_of_environments,
    actions_that_are_no_number,
    bounds_of_two_shapes,
    a_space_that_is_none,
    an_unknown_option,
    a_policy_by_name,
    a_policy_that_is_a_number,
    bad_base64,
    a_code_that_is_a_number,
    gamma_out_of_range,
    no_description,
]


@pytest.mark.parametrize("change", DESCRIPTIONS, ids=lambda f: f.__name__)
def test_a_description(change: Change, inside: Path) -> None:
    refused(load_model, rewritten(inside, change), match="__class__" if change is an_unknown_option else "")


@pytest.mark.parametrize("name", ["../../evil.pth", "/etc/evil.pth", "..\\evil.pth", "C:evil.pth", "a/../../b"])
@pytest.mark.parametrize("door", [load_model, load_weights])
def test_names_that_lead_elsewhere(name: str, door: Callable[[Path], Any], inside: Path) -> None:
    def change(data: Any, members: dict[str, bytes]) -> None:
        members[name] = b"x"

    refused(door, rewritten(inside, change), match="evil|a/../../b")


@pytest.mark.parametrize("door", [load_model, load_weights])
def test_a_zip_that_fills_the_memory(door: Callable[[Path], Any], inside: Path) -> None:
    def change(data: Any, members: dict[str, bytes]) -> None:
        members["bomb.pth"] = bytes(100 * 2**20)

    refused(door, rewritten(inside, change, compression=zipfile.ZIP_DEFLATED), match="would unpack to")


@pytest.mark.parametrize("door", [load_model, load_weights])
def test_a_member_twice(door: Callable[[Path], Any], inside: Path) -> None:
    path = rewritten(inside, lambda data, members: None)
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("policy.pth", b"another")
    refused(door, path, match="twice")


@pytest.mark.parametrize("door", [load_model, load_weights])
def test_a_link_in_a_zip(door: Callable[[Path], Any], inside: Path) -> None:
    path = rewritten(inside, lambda data, members: None)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("link.pth")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    refused(door, path, match="symbolic link")


@pytest.mark.parametrize("door", [load_model, load_weights, load_experience])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_part_of_a_zip(share: float, door: Callable[[Path], Any], inside: Path) -> None:
    content = (DATA / "ppo.zip").read_bytes()
    (inside / "model.zip").write_bytes(content[: int(share * len(content))])
    refused(door, inside / "model.zip")


def test_a_size_that_lies(inside: Path) -> None:
    """A member's size in the directory of the zip, which is what the memory would be taken for."""
    path = rewritten(inside, lambda data, members: None)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**31)
    path.write_bytes(content)
    refused(load_model, path)


# -- files of polyak's own ---------------------------------------------------------------------------------------------


def own(folder: Path, change: Callable[[dict[str, Any], dict[str, bytes]], Any], **options: Any) -> Path:
    """A good file of polyak's in which ``change`` has edited the description and the other members."""
    file = io.BytesIO()
    cartpole(seed=0, device="cpu").save(file)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    info = json.loads(members.pop("polyak.json"))
    raw = change(info, members)
    path = folder / "own.zip"
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("polyak.json", raw if isinstance(raw, bytes) else json.dumps(info))
        for name, content in members.items():
            archive.writestr(name, content)
    return path


OWN: dict[str, Callable[[dict[str, Any], dict[str, bytes]], Any]] = {
    "a function as the policy": lambda i, m: i.update(policy={"$class": "os:system"}),
    "a class that is not imported": lambda i, m: i.update(policy={"$class": "antigravity:X"}),
    "the command line": lambda i, m: i.update(policy={"$class": "polyak.__main__:main"}),
    "a program of torch's": lambda i, m: i.update(policy={"$class": "torch.utils.collect_env:main"}),
    "code as the policy": lambda i, m: i.update(policy={"$pickle": base64.b64encode(PAYLOADS["os.system"]).decode()}),
    "an array of objects": lambda i, m: i["hyperparameters"].update(gamma={"$array": ["|O", [1], "AAAAAAAAAAA="]}),
    "no weights": lambda i, m: m.pop("networks.safetensors") and None,
}


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_our_own(name: str, inside: Path) -> None:
    refused(load_model, own(inside, OWN[name]))


def test_a_file_of_our_own_that_is_compressed(inside: Path) -> None:
    refused(load_model, own(inside, lambda i, m: None, compression=zipfile.ZIP_DEFLATED), match="compressed")


# -- statistics and experience -----------------------------------------------------------------------------------------


def statistics(folder: Path, **changes: Any) -> Path:
    running = {"mean": np.zeros(3), "var": np.ones(3), "count": 2.0}
    single = {"mean": np.zeros(()), "var": np.ones(()), "count": 2.0}
    state: dict[str, Any] = {"training": True, "norm_obs": True, "norm_reward": True, "clip_obs": 10.0, "gamma": 0.9}
    state |= {"clip_reward": 10.0, "epsilon": 1e-8, "norm_obs_keys": None}
    state["ret_rms"] = writer.Object(names.RUNNING_MEAN_STD, single)
    state["obs_rms"] = writer.Object(names.RUNNING_MEAN_STD, running | changes.pop("running", {}))
    path = folder / "statistics.pkl"
    path.write_bytes(writer.dumps(writer.Object(names.VEC_NORMALIZE, state | changes)))
    return path


def test_the_pattern_of_the_following_is_a_good_file(inside: Path) -> None:
    load_statistics(statistics(inside))


@pytest.mark.parametrize(
    "changes",
    [
        {"running": {"mean": np.zeros(5), "var": np.ones(5)}},
        {"running": {"mean": np.zeros(5)}},
        {"running": {"mean": np.full(3, np.nan)}},
        {"running": {"var": -np.ones(3)}},
        {"running": {"mean": np.array(["a", "b", "c"])}},
        {"running": {"mean": "zero"}},
        {"running": {"count": float("nan")}},
        {"gamma": "0.9"},
        {"clip_obs": float("inf")},
        {"obs_rms": 7},
        {"ret_rms": None},
        {"norm_obs_keys": [1]},
    ],
    ids=repr,
)
def test_statistics(changes: dict[str, Any], inside: Path) -> None:
    refused(load_statistics, statistics(inside, **changes))


def _npz(folder: Path, write: Callable[..., None], **arrays: Any) -> Path:
    with (folder / "statistics").open("wb") as file:
        write(file, **arrays)
    return folder / "statistics"


def test_arrays_of_objects_in_statistics_of_our_own(inside: Path) -> None:
    array = np.empty(1, object)
    array[0] = Evil()
    header = np.array(json.dumps({"format": "polyak.VecNormalize/1", "state": {}}))
    refused(load_statistics, _npz(inside, np.savez, header=header, **{"state/returns": array}))


def experience(folder: Path, **changes: Any) -> Path:
    state: dict[str, Any] = {"buffer_size": 4, "pos": 2, "full": False, "n_envs": 1, "optimize_memory_usage": False}
    state |= {name: np.zeros((4, 1, 4), np.float32) for name in ("observations", "next_observations")}
    state |= {name: np.zeros((4, 1), np.float32) for name in ("rewards", "dones", "timeouts")}
    state["actions"] = np.zeros((4, 1, 1), np.int64)
    path = folder / "replay.pkl"
    path.write_bytes(writer.dumps(writer.Object(("stable_baselines3.common.buffers", "ReplayBuffer"), state | changes)))
    return path


def test_the_pattern_of_these_is_a_good_file_too(inside: Path) -> None:
    load_experience(experience(inside))


@pytest.mark.parametrize(
    "changes",
    [
        {"pos": 99},
        {"pos": float("nan")},
        {"pos": -1},
        {"rewards": np.zeros((4, 2), np.float32)},
        {"rewards": np.zeros((4, 1), np.complex64)},
        {"rewards": 7},
        {"rewards": np.zeros((0, 1), np.float32)},
        {"observations": np.zeros((4, 1, 5), np.float32)},
        {"observations": np.zeros((4, 1, 4), np.complex128)},
        {"observations": {"a": np.zeros((4, 1, 4), np.float32)}},
        {"next_observations": np.zeros((3, 1, 4), np.float32)},
        {"actions": np.zeros((4, 1, 1), np.float32)},
        {"dones": np.full((4, 1), "x")},
        {"timeouts": None},
    ],
    ids=repr,
)
def test_experience(changes: dict[str, Any], inside: Path) -> None:
    refused(load_experience, experience(inside, **changes))


# -- settings ----------------------------------------------------------------------------------------------------------


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [PPO.save, PPO.save_sb3])
def test_a_link_is_replaced_and_not_followed(save: Callable[..., None], inside: Path) -> None:
    (inside / "victim").write_bytes(b"precious")
    (inside / "model.zip").symlink_to(inside / "victim")
    save(cartpole(), inside / "model.zip")
    assert (inside / "victim").read_bytes() == b"precious"
    assert not (inside / "model.zip").is_symlink()
    assert sorted(path.name for path in inside.iterdir()) == ["model.zip", "victim"]
