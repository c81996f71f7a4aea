"""Files of models that are made to take memory or time, or to end in an error of Python's own; and a child that reads
them all.

``python -m tests.checkpoint.hostile_models FOLDER`` writes every file into the folder, reads it through the reader that
it is meant for, and prints one line of JSON for each.
"""

from __future__ import annotations

import base64
import copy
import gc
import io
import json
import os
import resource
import shutil
import signal
import stat
import struct
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import safetensors.numpy
import torch
from gymnasium import spaces

from polyak import DQN, PPO, SAC, TQC, AlphaZero, QLearning, RecurrentPPO
from polyak.algorithms.imitation.reward import RewardFunction
from polyak.compat.rllib_face import Algorithm, DefaultPPOTorchRLModule, PPOConfig, RLModuleSpec
from polyak.compat.sb3_face import save_util
from polyak.compat.sb3_face.files import writer
from polyak.envs import DummyVecEnv, VecNormalize, make_vec_env
from polyak.nn.networks.rewards import RewardNet
from tests.harm import Late, forget_peak, late, status

DATA = Path(__file__).parents[1] / "compat" / "data"
SECONDS, MEGABYTES = 5, 512
"""What reading one file may take."""
EXPECTED = (ValueError, OSError)
"""What a reader may raise. FileNotFoundError and UntrustedError are among them."""

Members = dict[str, bytes]
Maker = Callable[[Path], Path]
Door = Callable[[Path], Any]


# -- readers -----------------------------------------------------------------------------------------------------------


def ppo(path: Path) -> Any:
    return PPO.load(path, device="cpu")


def ppo_in_env(path: Path) -> Any:
    return PPO.load(path, env="CartPole-v1", device="cpu")


def resumed_ppo(path: Path) -> Any:
    return PPO.load(path, env="CartPole-v1", device="cpu", resume=True, force_reset=False)


def dqn_in_env(path: Path) -> Any:
    return DQN.load(path, env="CartPole-v1", device="cpu")


def sac_in_env(path: Path) -> Any:
    return SAC.load(path, env="Pendulum-v1", device="cpu")


def tqc(path: Path) -> Any:
    return TQC.load(path, device="cpu")


def recurrent_in_env(path: Path) -> Any:
    return RecurrentPPO.load(path, env="CartPole-v1", device="cpu")


def table(path: Path) -> Any:
    return QLearning.load(path)


def alphazero(path: Path) -> Any:
    return AlphaZero.load(path, device="cpu")


def weights(path: Path) -> Any:
    return small_ppo().set_parameters(path)


def policy(path: Path) -> Any:
    from polyak.compat.sb3.ppo import MlpPolicy

    return MlpPolicy.load(path)


def zip_file(path: Path) -> Any:
    return save_util.load_from_zip_file(path, device="cpu")


def pickle_file(path: Path) -> Any:
    return save_util.load_from_pkl(path)


def reward(path: Path) -> Any:
    return RewardFunction.load(path)


def statistics(path: Path) -> Any:
    return VecNormalize.load(path, DummyVecEnv([lambda: gym.make("Pendulum-v1")]))


def scale(path: Path) -> Any:
    return Algorithm.from_checkpoint(path)


def module(path: Path) -> Any:
    return DefaultPPOTorchRLModule.from_checkpoint(path)


# -- honest files, and how they are changed ----------------------------------------------------------------------------


def small_ppo(**options: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]}, **options)


def _saved(model: Any) -> Members:
    file = io.BytesIO()
    model.save(file)
    return _members(file)


def _members(file: Any) -> Members:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@cache
def honest(kind: str) -> Members:
    small = {"net_arch": [4]}
    match kind:
        case "ppo":
            return _saved(small_ppo(device="cpu", compile=False).learn(8))
        case "dqn":
            return _saved(DQN("MlpPolicy", "CartPole-v1", buffer_size=32, policy_kwargs=small, device="cpu"))
        case "sac":
            return _saved(SAC("MlpPolicy", "Pendulum-v1", buffer_size=32, policy_kwargs=small, device="cpu"))
        case "tqc":
            return _saved(TQC("MlpPolicy", "Pendulum-v1", buffer_size=32, policy_kwargs=small, device="cpu"))
        case "recurrent":
            options = {**small, "memory_size": 4}
            return _saved(RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8, policy_kwargs=options))
        case "table":
            return _saved(QLearning("FrozenLake-v1"))
        case "alphazero":
            return _saved(AlphaZero("MlpPolicy", "tictactoe", n_games=2, simulations=2, policy_kwargs=small))
        case "reward":
            net = RewardNet(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), net_arch=[4])
            return _saved(RewardFunction(net, arguments={"net_arch": [4]}))
        case "sb3":
            return _members(DATA / "ppo.zip")
        case "sb3_dqn":
            return _members(DATA / "dqn.zip")
        case "policy":
            from polyak.compat.sb3.ppo import MlpPolicy

            file = io.BytesIO()
            made = MlpPolicy(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), lambda _: 1e-3, net_arch=[4])
            made.save(file)
            return _members(file)
    raise KeyError(kind)


def zipped(path: Path, members: Members, **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def described(kind: str, change: Callable[[Any], Any], member: str | None = None) -> Maker:
    """A file whose description ``change`` has edited in place, or replaced by what it returns."""

    def make(folder: Path) -> Path:
        members = dict(honest(kind))
        name = member or {"policy": "policy.json", "sb3": "data", "sb3_dqn": "data"}.get(kind, "polyak.json")
        name = next(full for full in members if full == name or full.endswith("/" + name))
        info = json.loads(members[name])
        other = change(info)
        members[name] = other if isinstance(other, bytes) else json.dumps(info if other is None else other).encode()
        return zipped(folder / "model.zip", members)

    return make


def tensors(kind: str, change: Callable[[dict[str, Any]], Any], member: str = "networks.safetensors") -> Maker:
    """A file of whose tensors ``change`` has edited the dict, or whose member it gives as bytes."""

    def make(folder: Path) -> Path:
        members = dict(honest(kind))
        name = next((full for full in members if full.endswith(member)), member)
        arrays = safetensors.numpy.load(members[name]) if name in members else {}
        other = change(arrays)
        members[name] = other if isinstance(other, bytes) else safetensors.numpy.save(arrays)
        return zipped(folder / "model.zip", members)

    return make


def at(*keys: Any) -> Callable[[Any], Callable[[Any], None]]:
    """``at("a", "b")(value)`` edits a description: ``info["a"]["b"] = value``."""

    def with_value(value: Any) -> Callable[[Any], None]:
        def change(info: Any) -> None:
            for key in keys[:-1]:
                info = info[key]
            info[keys[-1]] = value

        return change

    return with_value


def without(key: str) -> Callable[[Any], None]:
    return lambda info: info.pop(key) and None


def hyper(name: str, value: Any) -> Callable[[Any], None]:
    return at("hyperparameters", name)(value)


def raw_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def space_json(space: spaces.Space) -> dict[str, Any]:
    from polyak.checkpoint.serialise import encode

    return encode(space)


def entry(code: bytes) -> dict[str, str]:
    return {":type:": "<class 'x'>", ":serialized:": base64.b64encode(code).decode()}


def peer_space(kind: str, **state: Any) -> dict[str, str]:
    names = {"MultiDiscrete": "multi_discrete", "Discrete": "discrete", "MultiBinary": "multi_binary", "Box": "box"}
    return entry(writer.dumps(writer.Object((f"gymnasium.spaces.{names[kind]}", kind), state)))


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


def nested_space(depth: int) -> dict[str, Any]:
    body: Any = ["Discrete", {"n": 2, "start": 0}]
    for _ in range(depth):
        body = ["Dict", {"a": body}]
    return {"$space": body}


def pth(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def peer_part(name: str, value: Any) -> Maker:
    def make(folder: Path) -> Path:
        return zipped(folder / "model.zip", {**honest("sb3"), name: value if isinstance(value, bytes) else pth(value)})

    return make


def of_members(member: str, share: float, folder: Path) -> Path:
    """A peer's file without one member, or with a share of it."""
    members = dict(honest("sb3"))
    content = members.pop(member)
    return zipped(folder / "model.zip", members | ({member: content[: int(len(content) * share)]} if share else {}))


def laughs(depth: int = 30) -> list[Any]:
    """Lists in lists, each of which holds the one before ten times: short in a pickle, endless when written out."""
    value: list[Any] = ["lol"]
    for _ in range(depth):
        value = [value] * 10
    return value


def written(content: bytes, name: str = "file.zip") -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


# -- zips that are none ------------------------------------------------------------------------------------------------


def plus(kind: str, name: str, content: bytes = b"x", **attributes: Any) -> Maker:
    """An honest file and one member more."""

    def make(folder: Path) -> Path:
        path = zipped(folder / "model.zip", honest(kind))
        member = zipfile.ZipInfo(name)
        for key, value in attributes.items():
            setattr(member, key, value)
        with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(member, content)
        return path

    return make


def encrypted(kind: str) -> Maker:
    def make(folder: Path) -> Path:
        path = zipped(folder / "model.zip", honest(kind))
        content = bytearray(path.read_bytes())
        for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = -1
            while (start := content.find(signature, start + 1)) >= 0:
                content[start + offset] |= 1
        path.write_bytes(content)
        return path

    return make


def cut(kind: str, share: float) -> Maker:
    def make(folder: Path) -> Path:
        path = zipped(folder / "model.zip", honest(kind))
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        return path

    return make


def overlapping(kind: str, copies: int, size: int) -> Maker:
    """Members that are all the same bytes of the file."""

    def make(folder: Path) -> Path:
        path = folder / "model.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in honest(kind).items():
                archive.writestr(name, content)
            archive.writestr("state/0.safetensors", bytes(size))
            whole = archive.infolist()[-1]
            for number in range(1, copies):
                twin = copy.copy(whole)
                twin.filename = twin.orig_filename = f"state/{number}.safetensors"
                archive.filelist.append(twin)
                archive.NameToInfo[twin.filename] = twin
            archive._didModify = True
        return path

    return make


def many_members(count: int) -> Maker:
    """A central directory of so many entries, all of the same empty member."""

    def make(folder: Path) -> Path:
        local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
        directory = b"".join(
            struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0) + b"%07d" % i
            for i in range(count)
        )
        end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), len(local))
        locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, len(local) + len(directory), 1)
        full = 2**32 - 1
        end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 65535, 65535, full, full, 0)
        (folder / "model.zip").write_bytes(local + directory + end64 + locator + end)
        return folder / "model.zip"

    return make


def bomb(member: str, size: int, kind: str = "sb3") -> Maker:
    def make(folder: Path) -> Path:
        members = {**honest(kind), member: bytes(size)}
        return zipped(folder / "model.zip", members, compression=zipfile.ZIP_DEFLATED, compresslevel=1)

    return make


def inner_bomb(folder: Path) -> Path:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", bytes(2**27))
    return zipped(folder / "model.zip", {**honest("sb3"), "policy.pth": file.getvalue()})


# -- paths that are no files -------------------------------------------------------------------------------------------


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "model.zip")
    return folder / "model.zip"


def link_to(target: str) -> Maker:
    def make(folder: Path) -> Path:
        (folder / "model.zip").symlink_to(target)
        return folder / "model.zip"

    return make


def a_folder(folder: Path) -> Path:
    (folder / "model.zip").mkdir()
    return folder / "model.zip"


def nothing(folder: Path) -> Path:
    return folder / "model.zip"


# -- statistics, modules, checkpoints of RLlib's face ------------------------------------------------------------------


@cache
def honest_statistics() -> dict[str, np.ndarray]:
    file = Path(os.environ["HOSTILE_FOLDER"]) / "statistics.npz"
    VecNormalize(make_vec_env("Pendulum-v1")).save(file)
    with np.load(file) as archive:
        return dict(archive)


def changed_statistics(change: Callable[[dict[str, Any]], Any], compressed: bool = False) -> Maker:
    def make(folder: Path) -> Path:
        arrays = dict(honest_statistics())
        change(arrays)
        with (folder / "vecnormalize.npz").open("wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays)
        return folder / "vecnormalize.npz"

    return make


def header(change: Callable[[Any], Any]) -> Maker:
    def edit(arrays: dict[str, Any]) -> None:
        info = json.loads(str(arrays["header"]))
        other = change(info)
        arrays["header"] = np.array(other if isinstance(other, str) else json.dumps(info if other is None else other))

    return changed_statistics(edit)


def npy_that_claims(folder: Path) -> Path:
    claimed = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }"
    claimed = claimed.ljust(127) + b"\n"
    path = changed_statistics(lambda arrays: None)(folder)
    members = {**_members(path), "state/obs_rms/mean.npy": claimed}
    return zipped(path, members)


def peer_statistics(**changes: Any) -> Maker:
    def make(folder: Path) -> Path:
        running = {"mean": np.zeros(3), "var": np.ones(3), "count": 1.0, **changes}
        rms = writer.Object(("stable_baselines3.common.running_mean_std", "RunningMeanStd"), running)
        state = {"clip_obs": 10.0, "clip_reward": 10.0, "gamma": 0.9, "epsilon": 1e-8, "training": True}
        state |= {"norm_obs": True, "norm_reward": True, "obs_rms": rms, "ret_rms": rms}
        name = ("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
        (folder / "vecnormalize.pkl").write_bytes(writer.dumps(writer.Object(name, state)))
        return folder / "vecnormalize.pkl"

    return make


@cache
def honest_module() -> dict[str, bytes]:
    folder = Path(os.environ["HOSTILE_FOLDER"]) / "module"
    spec = RLModuleSpec(
        DefaultPPOTorchRLModule, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), model_config={"fcnet_hiddens": [4]}
    )
    spec.build().save_to_path(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def changed_module(change: Callable[[Any], Any] | None = None, **files: bytes) -> Maker:
    def make(folder: Path) -> Path:
        members = dict(honest_module())
        description = next(name for name in members if name.endswith(".json"))
        state = next(name for name in members if not name.endswith(".json"))
        if change is not None:
            info = json.loads(members[description])
            other = change(info)
            members[description] = other if isinstance(other, bytes) else json.dumps(other or info).encode()
        if "state" in files:
            members[state] = files["state"]
        (folder / "module").mkdir()
        for name, content in members.items():
            (folder / "module" / name).write_bytes(content)
        return folder / "module"

    return make


@cache
def honest_checkpoint() -> Members:
    config = PPOConfig().environment("CartPole-v1").training(train_batch_size_per_learner=64, minibatch_size=64)
    config.rl_module(model_config={"fcnet_hiddens": [4]})
    folder = Path(os.environ["HOSTILE_FOLDER"]) / "checkpoint"
    algorithm = config.build_algo()
    algorithm.save_to_path(folder)
    algorithm.stop()
    return _members(folder / "model.zip")


def changed_checkpoint(change: Callable[[Any], Any], member: str = "algorithm.json") -> Maker:
    def make(folder: Path) -> Path:
        members = dict(honest_checkpoint())
        info = json.loads(members[member])
        other = change(info)
        members[member] = other if isinstance(other, bytes) else json.dumps(info if other is None else other).encode()
        (folder / "checkpoint").mkdir()
        zipped(folder / "checkpoint" / "model.zip", members)
        return folder / "checkpoint"

    return make


# -- the table ---------------------------------------------------------------------------------------------------------


def of_ppo(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return ppo, described("ppo", change)


def of_peer(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return ppo, described("sb3", change)


def of_policy(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return policy, described("policy", change)


def of_reward(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return reward, described("reward", change)


def of_module(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return module, changed_module(change)


def of_checkpoint(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return scale, changed_checkpoint(change)


def of_statistics(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return statistics, changed_statistics(change)


def of_arrays(arrays: dict[str, Any]) -> tuple[Door, Maker]:
    return of_statistics(lambda honest: honest.update(arrays))


def of_header(change: Callable[[Any], Any]) -> tuple[Door, Maker]:
    return statistics, header(change)


def of_settings(**settings: Any) -> tuple[Door, Maker]:
    return of_header(lambda info: info["state"].update(settings))


def of_weights(value: Any) -> tuple[Door, Maker]:
    """Of a peer's file."""
    return ppo, peer_part("policy.pth", value)


def of_optimizer(state: Any, *groups: Any) -> tuple[Door, Maker]:
    """Of a peer's file."""
    return ppo, peer_part("policy.optimizer.pth", {"state": state, "param_groups": [*groups]})


@dataclass(frozen=True)
class Case:
    name: str
    door: Door
    make: Maker


def cases() -> Iterator[Case]:
    """All of them."""
    for group in (_sizes, _numbers, _texts, _tensors, _zips, _peers, _others):
        yield from (Case(name, door, make) for name, (door, make) in group().items())


Table = dict[str, tuple[Door, Maker]]
MANY = 10**12


@cache
def _sizes() -> Table:
    kwargs = "policy_kwargs"
    wide = spaces.MultiDiscrete(np.full(3_000_000, 2, np.int8))
    image = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    cnn: dict[str, Any] = {"features_extractor_class": {"$class": "polyak.nn:NatureCNN"}}

    def images(info: Any) -> None:
        info["observation_space"] = space_json(image)
        info["policy"] = "CnnPolicy"
        info["hyperparameters"][kwargs] = {**cnn, "features_extractor_kwargs": {"features_dim": 200_000}}

    table: Table = {
        "3e6 actions at once": of_ppo(at("action_space")(space_json(wide))),
        "observations of 3e6 choices": of_ppo(at("observation_space")(space_json(wide))),
        "5,000 layers": of_ppo(hyper(kwargs, {"net_arch": [64] * 5_000})),
        "5,000 layers of one": of_ppo(hyper(kwargs, {"net_arch": [1] * 5_000})),
        "1e6 layers": of_ppo(hyper(kwargs, {"net_arch": [1] * 1_000_000})),
        "1e6 layers of a critic": of_ppo(hyper(kwargs, {"net_arch": {"pi": [4], "vf": [1] * 10**6}})),
        "features_dim=2e5": of_ppo(images),
        "a wide layer": of_ppo(hyper(kwargs, {"net_arch": [200_000, 200_000]})),
        "a layer of 1e30": of_ppo(hyper(kwargs, {"net_arch": [10**30]})),
        "a layer of -1": of_ppo(hyper(kwargs, {"net_arch": [-1]})),
        "a layer of text": of_ppo(hyper(kwargs, {"net_arch": ["wide"]})),
        "a layer of nan": of_ppo(hyper(kwargs, {"net_arch": [float("nan")]})),
        "1e6 critics": (sac_in_env, described("sac", hyper(kwargs, {"net_arch": [4], "n_critics": 1_000_000}))),
        "1e12 quantiles": (tqc, described("tqc", hyper(kwargs, {"net_arch": [4], "n_quantiles": MANY}))),
        "1e6 quantiles": (tqc, described("tqc", hyper(kwargs, {"net_arch": [4], "n_quantiles": 1_000_000}))),
        "a memory of 1e5": (recurrent_in_env, described("recurrent", hyper(kwargs, {"memory_size": 100_000}))),
        "1e6 memories": (recurrent_in_env, described("recurrent", hyper(kwargs, {"memory_layers": 1_000_000}))),
        "sequences of 1e12": (recurrent_in_env, described("recurrent", _steps_and_sequences)),
        "a table of 1e9": (table_door(), described("table", at("observation_space")(_discrete(10**9)))),
        "a table of 9e6": (table_door(), described("table", at("observation_space")(_discrete(9_000_000)))),
        "1e9 choices of a table": (table_door(), described("table", at("action_space")(_discrete(10**9)))),
        "1e12 choices": of_ppo(at("action_space")(_discrete(MANY))),
        "1e40 choices": of_ppo(at("action_space")(_discrete(10**40))),
        "no choices": of_ppo(at("action_space")(_discrete(0))),
        "1e12 switches": of_ppo(at("observation_space")({"$space": ["MultiBinary", {"n": MANY}]})),
        "switches in 1e5 dimensions": of_ppo(
            at("observation_space")({"$space": ["MultiBinary", {"n": [1] * 100_000}]})
        ),
        "-5 switches": of_ppo(at("action_space")({"$space": ["MultiBinary", {"n": -5}]})),
        "a space of 40,000 parts": of_ppo(at("observation_space")(_parts(40_000))),
        "a space 25 deep": of_ppo(at("observation_space")(nested_space(25))),
        "a space 300 deep": of_ppo(at("observation_space")(nested_space(300))),
        "1e9 noises": (sac_in_env, described("sac", hyper("action_noise", _noises(10**9, 1)))),
        "1e5 noises of 1e4": (sac_in_env, described("sac", hyper("action_noise", _noises(100_000, 10_000)))),
    }
    for name in ("n_epochs", "n_steps", "batch_size", "stats_window_size", "sde_sample_freq"):
        table[f"{name}=1e12"] = ppo_in_env, described("ppo", hyper(name, MANY))
        table[f"{name}=1e30"] = ppo_in_env, described("ppo", hyper(name, 10**30))
    for name in ("buffer_size", "batch_size", "n_steps", "gradient_steps", "learning_starts", "target_update_interval"):
        table[f"DQN's {name}=1e12"] = dqn_in_env, described("dqn", hyper(name, MANY))
        table[f"DQN's {name}=1e30"] = dqn_in_env, described("dqn", hyper(name, 10**30))
    ranked = {"kind": "rank"}
    for size in (3 * 10**7, 3 * 10**8):
        table |= {
            f"{size} rows": (dqn_in_env, described("dqn", hyper("buffer_size", size))),
            f"{size} rows and priorities": (
                dqn_in_env,
                described("dqn", _both(hyper("buffer_size", size), hyper("prioritized", True))),
            ),
            f"{size} rows and ranks": (
                dqn_in_env,
                described("dqn", _both(hyper("buffer_size", size), hyper("prioritized", ranked))),
            ),
            f"rollouts of {size}": (ppo_in_env, described("ppo", _both(hyper("n_steps", size)))),
        }
    for name in ("n_games", "n_workers", "simulations", "buffer_size", "past_players"):
        table[f"AlphaZero's {name}=1e9"] = alphazero, described("alphazero", hyper(name, 10**9))
    return table


def table_door() -> Door:
    return table


def _both(*changes: Callable[[Any], Any]) -> Callable[[Any], None]:
    def change(info: Any) -> None:
        for each in changes:
            each(info)

    return change


def _steps_and_sequences(info: Any) -> None:
    info["hyperparameters"] |= {"n_steps": 10**9 + 7, "batch_size": 10**9 + 7}


def _discrete(n: Any, start: Any = 0) -> dict[str, Any]:
    return {"$space": ["Discrete", {"n": n, "start": start}]}


def _parts(count: int) -> dict[str, Any]:
    return {"$space": ["Dict", {f"k{i}": ["Discrete", {"n": 2, "start": 0}] for i in range(count)}]}


def _noises(count: int, size: int) -> dict[str, Any]:
    from polyak.checkpoint.serialise import encode
    from polyak.noise import NormalActionNoise

    base = encode(NormalActionNoise(np.zeros(size), np.ones(size)))["$noise"]
    return {"$noise": ["vectorized", {"base": base, "n_envs": count}]}


def _numbers() -> Table:
    table: Table = {}
    wrong = {"nan": {"$float": "nan"}, "-1": -1, "text": "many", "a list": [1], "None": None, "1e30": 10**30}
    wrong |= {"a bool": True, "a half": 0.5, "an object": {"a": 1}}
    for name in ("num_timesteps", "_n_updates", "_episode_num", "_total_timesteps", "_current_progress_remaining"):
        for kind, value in wrong.items():
            table[f"{name} is {kind}"] = of_ppo(at("counters", name)(value))
    for kind, value in wrong.items():
        table[f"n_envs is {kind}"] = of_ppo(at("n_envs")(value))
        table[f"learner_steps is {kind}"] = of_ppo(at("learner_steps")(value))
        table[f"n_steps is {kind}"] = ppo_in_env, described("ppo", hyper("n_steps", value))
        table[f"seed is {kind}"] = of_ppo(hyper("seed", value))
        table[f"_n_calls is {kind}"] = dqn_in_env, described("dqn", at("extra_state", "_n_calls")(value))
        table[f"iteration is {kind}"] = of_checkpoint(at("iteration")(value))
        table[f"sb3's num_timesteps is {kind}"] = of_peer(at("num_timesteps")(value))
        table[f"sb3's progress is {kind}"] = of_peer(at("_current_progress_remaining")(value))
        table[f"sb3's n_calls is {kind}"] = sb3_dqn, described("sb3_dqn", at("_n_calls")(value))
        table[f"sb3's rate is {kind}"] = sb3_dqn, described("sb3_dqn", at("exploration_rate")(value))
    for name, value in {"a list": [1], "text": "x", "an object": {}, "None": None}.items():
        for key in ("counters", "ep_info_buffer", "ep_success_buffer", "extra_state", "optimizers", "rng", "bases"):
            table[f"{key} is {name}"] = of_ppo(at(key)(value))
        table[f"resumed: rng is {name}"] = resumed_ppo, described("ppo", at("rng")(value))
    table["ep_info_buffer of numbers"] = of_ppo(at("ep_info_buffer")([1, 2]))
    table["an unknown counter"] = of_ppo(at("counters", "predict")(1))
    table["gamma is huge"] = of_ppo(hyper("gamma", 1e300))
    table["5,000 digits"] = of_ppo(lambda info: _digits(info, 5_000))
    table["4,000 digits"] = of_ppo(lambda info: _digits(info, 4_000))
    table["4,000 digits of n_steps"] = ppo_in_env, described("ppo", hyper("n_steps", 10**4000))
    table["4,000 digits of Discrete"] = of_ppo(at("action_space")(_discrete(10**4000)))
    table["5,000 digits in a peer's file"] = of_peer(lambda info: _digits(info, 5_000, "sb3"))
    table["5,000 digits of n_envs"] = of_peer(lambda info: _digits(info, 4_000, "sb3"))
    table["5,000 digits of a module"] = of_module(lambda info: _digits(info, 5_000, "module"))
    table["5,000 digits of a checkpoint"] = of_checkpoint(lambda info: _digits(info, 5_000, "module"))
    return table


def sb3_dqn(path: Path) -> Any:
    return DQN.load(path, device="cpu")


def _digits(info: Any, count: int, kind: str = "ppo") -> bytes:
    target = info if kind != "ppo" else info["counters"]
    target["num_timesteps"] = "NUMBER"
    return json.dumps(info).replace('"NUMBER"', "1" * count).encode()


def _texts() -> Table:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    lists = b'{"a": [' + b"[]," * 10_000_000 + b"[]]}"
    table: Table = {
        "bool keys": of_ppo(hyper("policy_kwargs", {"$dict": [[True, 1], [False, 2]]})),
        "list keys": of_ppo(hyper("policy_kwargs", {"$dict": [[[1], 1]]})),
        "number keys": of_ppo(hyper("policy_kwargs", {"$dict": [[1, 1]]})),
        "bool keys of net_arch": of_ppo(hyper("policy_kwargs", {"net_arch": {"$dict": [[True, [4]]]}})),
        "an unknown tag": of_ppo(hyper("gamma", {"$lambda": "x"})),
        "an unknown noise": (sac_in_env, described("sac", hyper("action_noise", {"$noise": ["brown", {}]}))),
        "an unknown schedule": of_ppo(hyper("learning_rate", {"$schedule": {"kind": "x"}})),
        "a schedule 60 deep": of_ppo(hyper("learning_rate", {"$schedule": _floats(50)})),
        "an unknown space": of_ppo(at("action_space")({"$space": ["Graph", {}]})),
        "a space that is a class": of_ppo(at("action_space")({"$class": "polyak.nn:NatureCNN"})),
        "a class that is a number": of_ppo(hyper("policy_kwargs", {"activation_fn": {"$class": 7}})),
        "an enum of nothing": of_ppo(hyper("gamma", {"$enum": []})),
        "a tuple of nothing": of_ppo(hyper("gamma", {"$tuple": 7})),
        "an array of objects": of_ppo(hyper("gamma", {"$array": ["O", [1], ""]})),
        "an array that is not there": of_ppo(hyper("gamma", {"$array": ["<f8", [10**12], ""]})),
        "an array of an odd dtype": of_ppo(hyper("gamma", {"$array": ["(99999999,)f8", [1], ""]})),
        "an array without data": of_ppo(hyper("gamma", {"$array": ["<f8", [1], None]})),
        "a number of bad base64": of_ppo(hyper("gamma", {"$scalar": ["<f8", [], "~"]})),
        "an unknown hyper-parameter": of_ppo(hyper("tesla", 1)),
        "an unknown policy": of_ppo(at("policy")("os.system")),
        "an unknown option": of_ppo(hyper("policy_kwargs", {"tesla": 1})),
        "an unknown algorithm": of_ppo(at("algorithm")("__import__")),
        "an algorithm that is a list": of_ppo(at("algorithm")([1])),
        "a game that is no name": (alphazero, described("alphazero", at("game")(["os", "system"]))),
        "a game by path": (alphazero, described("alphazero", at("game")("os:system"))),
        "another format": of_ppo(at("format")("zip")),
        "a version of text": of_ppo(at("format_version")("1")),
        "a version of tomorrow": of_ppo(at("format_version")(99)),
        "a version below": of_ppo(at("format_version")(-1)),
        "a list": of_ppo(lambda info: b"[1, 2]"),
        "no text": of_ppo(lambda info: b"\xff\xfe\x00"),
        "half a text": of_ppo(lambda info: b'{"format": "pol'),
        "nan in the text": of_ppo(lambda info: b'{"format": NaN}'),
        "nothing": of_ppo(lambda info: b""),
        "an empty object": of_ppo(lambda info: b"{}"),
        "nested 100,000 deep": of_ppo(lambda info: deep),
        "nested 200 deep": of_ppo(at("extra")(nested(200))),
        "10 million lists": of_ppo(lambda info: lists),
        "10 million lists of a peer": of_peer(lambda info: lists),
        "10 million lists of a policy": of_policy(lambda info: lists),
        "10 million lists of a module": of_module(lambda info: lists),
        "10 million lists of a checkpoint": of_checkpoint(lambda info: lists),
        "nested policy": of_policy(lambda info: deep),
        "nested module": of_module(lambda info: deep),
        "nested checkpoint": of_checkpoint(lambda info: deep),
        "nested peer": of_peer(lambda info: deep),
        "nested peer by its reader": (zip_file, described("sb3", lambda info: deep)),
        "nested table": (table_door(), described("table", lambda info: deep)),
    }
    for key in ("hyperparameters", "observation_space", "action_space", "counters", "optimizers", "learner_steps"):
        table[f"no {key}"] = of_ppo(without(key))
        table[f"a list for {key}"] = of_ppo(at(key)([1, 2]))
    return table


def _floats(depth: int) -> Any:
    value: Any = 0.1
    for _ in range(depth):
        value = {"kind": "float", "schedule": value}
    return value


def _tensors() -> Table:
    def first(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, Any]], None]:
        def edit(arrays: dict[str, Any]) -> None:
            name = sorted(name for name, array in arrays.items() if array.ndim)[0]
            arrays[name] = change(arrays[name])

        return edit

    def plain(kind: str, dtype: str, size: int) -> bytes:
        return raw_header({kind: {"dtype": dtype, "shape": [1], "data_offsets": [0, size]}}, bytes(size))

    twice = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    twice |= {"b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}
    holes = {**twice, "b": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]}}
    claims = {"a": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}
    beyond = {"a": {"dtype": "F32", "shape": [10**6], "data_offsets": [0, 4 * 10**6]}}
    backwards = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}
    product = {"a": {"dtype": "F32", "shape": [2**32, 2**32, 2], "data_offsets": [0, 0]}}
    empty = (
        b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(200_000)) + b"}"
    )
    named = (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    )
    files = {
        "numbers that overlap": raw_header(twice, bytes(12)),
        "numbers with holes": raw_header(holes, bytes(16)),
        "a shape that is not there": raw_header(claims, bytes(4)),
        "numbers beyond the end": raw_header(beyond, bytes(4)),
        "offsets backwards": raw_header(backwards, bytes(4)),
        "a shape that overflows": raw_header(product),
        "200,000 empty tensors": raw_header(empty),
        "one name twice": raw_header(named, bytes(4)),
        "a header that is not there": struct.pack("<Q", 2**60) + b"{}",
        "a header of 8 bytes": b"\x00" * 8,
        "no header": b"",
        "three bytes": b"abc",
        "a header of text": raw_header(b"hello"),
        "a header that is a list": raw_header([1, 2]),
        "a header that is deep": raw_header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
        "a negative shape": raw_header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        "an unknown dtype": plain("a", "F99", 4),
    }
    for dtype, size in {"BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F4": 1, "C64": 8}.items():
        files[f"{dtype} tensors"] = plain("a", dtype, size)
    table: Table = {}
    for name, content in files.items():
        table[name] = ppo, tensors("ppo", lambda arrays, content=content: content)
        table[f"{name} by set_parameters"] = weights, tensors("ppo", lambda arrays, content=content: content)
        table[f"{name} in a policy"] = (
            policy,
            tensors("policy", lambda a, content=content: content, "weights.safetensors"),
        )
        table[f"{name} in a module"] = module, changed_module(state=content)
        table[f"{name} in a reward"] = reward, tensors("reward", lambda arrays, content=content: content)
    for name, change in {
        "whole numbers": lambda array: array.astype(np.int64),
        "switches": lambda array: array.astype(bool),
        "half": lambda array: array[: len(array) // 2],
        "one more dimension": lambda array: array[None],
        "twice as wide": lambda array: np.concatenate([array, array]),
        "doubles": lambda array: array.astype(np.float64),
        "halves": lambda array: array.astype(np.float16),
    }.items():
        table[f"weights: {name}"] = ppo, tensors("ppo", first(change))
        table[f"optimizer: {name}"] = ppo, tensors("ppo", first(change), "optimizers.safetensors")
        table[f"table: {name}"] = table_door(), tensors("table", first(change))
        table[f"reward: {name}"] = reward, tensors("reward", first(change))
        table[f"legal: {name}"] = table_door(), tensors("table", first(change), "state.safetensors")
        table[f"state: {name}"] = resumed_ppo, tensors("ppo", first(change), "state.safetensors")
    odd = {"a": np.zeros(1, np.float32)}
    for member in ("networks", "optimizers", "state", "replay"):
        table[f"an odd name in {member}"] = (
            resumed_ppo,
            tensors("ppo", lambda arrays: arrays.update(odd), f"{member}.safetensors"),
        )
        table[f"nothing in {member}"] = resumed_ppo, tensors("ppo", lambda a: a.clear(), f"{member}.safetensors")
    slashes = {"policy/x/exp_avg": np.zeros(1, np.float32), "policy/1/2/3": np.zeros(1, np.float32)}
    table["odd parts of an optimizer"] = ppo, tensors("ppo", lambda a: a.update(slashes), "optimizers.safetensors")
    return table


def _zips() -> Table:
    table: Table = {}
    doors = {"ppo": ppo, "sb3": ppo, "policy": policy, "reward": reward, "table": table_door()}
    for kind, door in doors.items():
        table |= {
            f"{kind}: an absolute name": (door, plus(kind, "/etc/x.pth")),
            f"{kind}: a name that leads up": (door, plus(kind, "../../x.pth")),
            f"{kind}: a name of Windows": (door, plus(kind, "C:\\x.pth")),
            f"{kind}: a link": (door, plus(kind, "x.pth", b"/etc/passwd", external_attr=(stat.S_IFLNK | 0o777) << 16)),
            f"{kind}: a member twice": (door, plus(kind, next(iter(_first_names(kind))))),
            f"{kind}: encrypted": (door, encrypted(kind)),
            f"{kind}: half": (door, cut(kind, 0.5)),
            f"{kind}: without its end": (door, cut(kind, 0.99)),
            f"{kind}: a bomb": (door, bomb("bomb.pth", 2**27, kind)),
            f"{kind}: overlapping": (door, overlapping(kind, 30, 2**20)),
        }
    for name, door in {"model": ppo, "weights": weights, "policy": policy, "zip": zip_file, "reward": reward}.items():
        table |= {
            f"{name}: an empty file": (door, written(b"")),
            f"{name}: zeros": (door, written(bytes(4096))),
            f"{name}: text": (door, written(b"hello " * 100)),
            f"{name}: the end of a zip": (door, written(b"PK\x05\x06" + bytes(18))),
            f"{name}: a zip of 200,000 members": (door, many_members(200_000)),
            f"{name}: a zip of another kind": (door, lambda folder: zipped(folder / "a.zip", {"a.txt": b"a"})),
            f"{name}: a fifo": (door, fifo),
            f"{name}: a link to /dev/zero": (door, link_to("/dev/zero")),
            f"{name}: a link to nothing": (door, link_to("nowhere")),
            f"{name}: a link to itself": (door, link_to("model.zip")),
            f"{name}: a folder": (door, a_folder),
            f"{name}: no file": (door, nothing),
        }
    return table


def _first_names(kind: str) -> list[str]:
    return {"ppo": ["polyak.json"], "reward": ["polyak.json"], "table": ["polyak.json"], "sb3": ["data"]}.get(
        kind, ["policy/policy.json"]
    )


@cache
def _peers() -> Table:
    nvec = np.full(3_000_000, 2, np.int8)
    strided = torch.zeros(1).expand(2**40)
    huge = torch.zeros(1).expand(10**9)
    eighth = torch.zeros(1).to(torch.float8_e4m3fn)
    group = {"lr": 1e-3, "params": [0]}
    table: Table = {
        "peer: 3e6 actions": of_peer(at("action_space")(peer_space("MultiDiscrete", nvec=nvec))),
        "peer: 3e6 in observations": of_peer(at("observation_space")(peer_space("MultiDiscrete", nvec=nvec))),
        "peer: 1e12 actions": of_peer(at("action_space")(peer_space("Discrete", n=MANY, start=0))),
        "peer: 1e12 switches": of_peer(at("observation_space")(peer_space("MultiBinary", n=MANY))),
        "peer: 5,000 layers": of_peer(at("policy_kwargs")({"net_arch": [64] * 5_000})),
        "peer: n_epochs=1e12": (ppo_in_env, described("sb3", at("n_epochs")(MANY))),
        "peer: n_steps=1e12": (ppo_in_env, described("sb3", at("n_steps")(MANY))),
        "peer: n_envs=1e12": of_peer(at("n_envs")(MANY)),
        "peer: buffer_size=1e12": (sb3_dqn_in_env, described("sb3_dqn", at("buffer_size")(MANY))),
        "peer: a bomb within": (ppo, inner_bomb),
        "peer: a bomb within, by its reader": (zip_file, inner_bomb),
        "peer: bomb by its reader": (zip_file, bomb("bomb.pth", 2**27)),
        "peer: data of a bomb, by its reader": (zip_file, bomb("data", 2**27)),
        "peer: strided weights": of_weights({"a": strided}),
        "peer: strided weights by its reader": (zip_file, peer_part("policy.pth", {"a": strided})),
        "peer: strided moments": of_optimizer({0: {"exp_avg": huge}}, group),
        "peer: a strided variable": (ppo, peer_part("pytorch_variables.pth", {"log_ent_coef": huge})),
        "peer: laughs in a group": of_optimizer({}, {"params": laughs(), "lr": 1}),
        "peer: laughs as a rate": of_optimizer({}, {**group, "lr": laughs()}),
        "peer: laughs in a state": of_optimizer({0: {"step": laughs()}}, group),
        "peer: laughs as weights": of_weights(laughs()),
        "peer: weights that are a list": of_weights([1, 2]),
        "peer: bool keys of weights": of_weights({True: torch.zeros(1)}),
        "peer: variables that are a list": (ppo, peer_part("pytorch_variables.pth", [1])),
        "peer: sparse weights": of_weights({"a": torch.eye(3).to_sparse()}),
        "peer: weights of meta": of_weights({"a": torch.zeros(10**9, device="meta")}),
        "peer: weights of F8": of_weights({"a": eighth}),
        "peer: moments of F8": of_optimizer({0: {"exp_avg": eighth}}, group),
        "peer: moments of BF16": of_optimizer({0: {"exp_avg": torch.zeros(1, dtype=torch.bfloat16)}}, group),
        "peer: no groups": of_optimizer({}),
        "peer: a group of text": of_optimizer({}, {"params": "a"}),
        "peer: states of text": of_optimizer({"a": {}}, group),
        "peer: an optimizer of bytes": (ppo, peer_part("policy.optimizer.pth", b"abc")),
        "peer: an odd optimizer": (ppo, peer_part("odd.optimizer.pth", {"state": {}, "param_groups": [group]})),
        "peer: bool keys": of_peer(at("policy_kwargs")(entry(cloudpickle.dumps({True: 1})))),
        "peer: a number of 5,000 digits": of_peer(at("n_envs")(entry(cloudpickle.dumps(10**5000)))),
        "peer: steps of 5,000 digits": (
            ppo_in_env,
            described("sb3", at("n_steps")(entry(cloudpickle.dumps(10**5000)))),
        ),
        "peer: time of 5,000 digits": of_peer(at("num_timesteps")(entry(cloudpickle.dumps(10**5000)))),
        "peer: ep_info_buffer of numbers": of_peer(at("ep_info_buffer")(7)),
        "peer: ep_info_buffer of lists": of_peer(at("ep_info_buffer")([[1], 2])),
        "peer: ep_success_buffer of numbers": of_peer(at("ep_success_buffer")(7)),
        "peer: train_freq of three": (sb3_dqn, described("sb3_dqn", at("train_freq")([1, 2, 3]))),
        "peer: train_freq of text": (sb3_dqn, described("sb3_dqn", at("train_freq")(["a", "b"]))),
        "pickle: a file that is none": (pickle_file, written(b"hello", "a.pkl")),
        "pickle: an empty file": (pickle_file, written(b"", "a.pkl")),
        "pickle: half": (pickle_file, written(cloudpickle.dumps({"a": list(range(100))})[:50], "a.pkl")),
        "pickle: a fifo": (pickle_file, fifo),
        "pickle: a folder": (pickle_file, a_folder),
        "pickle: a link to /dev/zero": (pickle_file, link_to("/dev/zero")),
        "pickle: no file": (pickle_file, nothing),
        "zip: strided weights": (zip_file, peer_part("policy.pth", {"a": huge})),
        "zip: an optimizer of bytes": (zip_file, peer_part("policy.optimizer.pth", b"abc")),
        "zip: a list of data": (zip_file, described("sb3", lambda info: b"[1]")),
        "zip: no text": (zip_file, described("sb3", lambda info: b"\xff\xfe")),
        "zip: encrypted": (zip_file, encrypted("sb3")),
        "zip: a member twice": (zip_file, plus("sb3", "data")),
        "zip: a list of polyak's": (zip_file, described("ppo", lambda info: b"[1]")),
        "zip: no hyper-parameters": (zip_file, described("ppo", without("hyperparameters"))),
        "zip: no optimizers": (zip_file, described("ppo", without("optimizers"))),
    }
    for member in ("data", "policy.pth", "policy.optimizer.pth"):
        table[f"peer: no {member}"] = ppo, partial(of_members, member, 0)
        table[f"peer: half of {member}"] = ppo, partial(of_members, member, 0.5)
    return table


def sb3_dqn_in_env(path: Path) -> Any:
    return DQN.load(path, env="CartPole-v1", device="cpu")


@cache
def _others() -> Table:
    wide = spaces.MultiDiscrete(np.full(3_000_000, 2, np.int8))
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    table: Table = {
        "reward: 3e6 choices": of_reward(at("observation_space")(space_json(wide))),
        "reward: wide": of_reward(at("arguments")({"net_arch": [50_000, 50_000]})),
        "reward: 1e6 layers": of_reward(at("arguments")({"net_arch": [1] * 1_000_000})),
        "reward: arguments of a list": of_reward(at("arguments")([1])),
        "reward: bool keys": of_reward(at("arguments")({"$dict": [[True, 1]]})),
        "reward: a form of text": of_reward(at("form")("eval")),
        "reward: a form of a list": of_reward(at("form")([1])),
        "reward: nothing to see": of_reward(at("arguments")({"use_state": False, "use_action": False})),
        "reward: no space": of_reward(at("action_space")(None)),
        "policy: 3e6 choices": of_policy(at("action_space")(space_json(wide))),
        "policy: wide": of_policy(at("net_arch")([50_000, 50_000])),
        "policy: 1e6 layers": of_policy(at("net_arch")([1] * 1_000_000)),
        "policy: a list": of_policy(lambda info: b"[1]"),
        "policy: an unknown argument": of_policy(at("tesla")(1)),
        "policy: bool keys": of_policy(at("net_arch")({"$dict": [[True, [1]]]})),
        "policy: no space": of_policy(without("action_space")),
        "policy: an extractor": of_policy(at("features_extractor")({"class": 1})),
        "module: 3e6 choices": of_module(at("action_space")(space_json(wide))),
        "module: wide": of_module(at("model_config")({"fcnet_hiddens": [50_000, 50_000]})),
        "module: 1e6 layers": of_module(at("model_config")({"fcnet_hiddens": [1] * 1_000_000})),
        "module: a list": of_module(lambda info: b"[1]"),
        "module: no class": of_module(without("module_class")),
        "module: another class": of_module(at("module_class")({"$class": "torch.nn:Linear"})),
        "module: a config of text": of_module(at("model_config")("x")),
        "module: no text": of_module(lambda info: b"\xff\xfe"),
        "module: nothing": (module, nothing),
        "checkpoint: a list": of_checkpoint(lambda info: b"[1]"),
        "checkpoint: a config of text": of_checkpoint(at("config")("x")),
        "checkpoint: another algorithm": of_checkpoint(at("algorithm")("os:system")),
        "checkpoint: an algorithm of a list": of_checkpoint(at("algorithm")([1])),
        "checkpoint: an unknown setting": of_checkpoint(at("config", "tesla")(1)),
        "checkpoint: 1e6 runners": of_checkpoint(at("config", "num_env_runners")(10**6)),
        "checkpoint: 1e6 environments": of_checkpoint(at("config", "num_envs_per_env_runner")(10**6)),
        "checkpoint: 1e6 learners": of_checkpoint(at("config", "num_learners")(10**6)),
        "checkpoint: 1e6 evaluators": of_checkpoint(at("config", "evaluation_num_env_runners")(10**6)),
        "checkpoint: minibatches of 1e12": of_checkpoint(at("config", "minibatch_size")(MANY)),
        "checkpoint: batches of 1e12": of_checkpoint(at("config", "train_batch_size_per_learner")(MANY)),
        "checkpoint: 1e12 epochs": of_checkpoint(at("config", "num_epochs")(MANY)),
        "checkpoint: layers": of_checkpoint(at("config", "model_config")({"fcnet_hiddens": [10**5] * 2})),
        "checkpoint: counters of text": of_checkpoint(at("counters")("x")),
        "checkpoint: no counters": of_checkpoint(at("counters")({})),
        "checkpoint: no format": of_checkpoint(without("format")),
        "checkpoint: a version of text": of_checkpoint(at("format_version")("1")),
        "checkpoint: a model of another": (scale, changed_checkpoint(at("algorithm")("DQN"), "polyak.json")),
        "checkpoint: nothing": (scale, nothing),
        "checkpoint: a folder": (scale, a_folder),
        "statistics: that are not there": (statistics, npy_that_claims),
        "statistics: compressed": (
            statistics,
            changed_statistics(lambda a: a.update({"state/x": np.zeros(10**7)}), True),
        ),
        "statistics: objects": of_arrays({"state/x": np.array([{}])}),
        "statistics: of another shape": of_arrays({"state/obs_rms/mean": np.zeros(7)}),
        "statistics: a variance of another shape": of_arrays({"state/obs_rms/var": np.zeros(7)}),
        "statistics: nan": of_arrays({"state/obs_rms/mean": np.full(3, np.nan)}),
        "statistics: negative": of_arrays({"state/obs_rms/var": np.full(3, -1.0)}),
        "statistics: text": of_arrays({"state/obs_rms/mean": np.array(["a"] * 3)}),
        "statistics: no mean": of_statistics(lambda a: a.pop("state/obs_rms/mean")),
        "statistics: no returns": of_statistics(lambda a: a.pop("state/returns")),
        "statistics: deep": of_header(lambda info: deep),
        "statistics: no state": of_header(without("state")),
        "statistics: a list": of_header(lambda info: "[1]"),
        "statistics: no text": of_header(lambda info: "hello"),
        "statistics: 4,000 digits": of_settings(gamma=10**4000),
        "statistics: gamma of text": of_settings(gamma="x"),
        "statistics: gamma of nan": of_settings(gamma=float("nan")),
        "statistics: epsilon below 0": of_settings(epsilon=-1),
        "statistics: keys of numbers": of_settings(norm_obs_keys=[1]),
        "statistics: unknown settings": of_settings(tesla=1),
        "statistics: lists": of_header(lambda info: '{"a": [' + "[]," * 5_000_000 + "[]]}"),
        "statistics: a fifo": (statistics, fifo),
        "statistics: a folder": (statistics, a_folder),
        "statistics: no file": (statistics, nothing),
        "statistics: an empty file": (statistics, written(b"")),
        "statistics: 200,000 members": (statistics, many_members(200_000)),
        "peer's statistics: of another shape": (statistics, peer_statistics(mean=np.zeros(7), var=np.ones(7))),
        "peer's statistics: nan": (statistics, peer_statistics(mean=np.full(3, np.nan))),
        "peer's statistics: a count of text": (statistics, peer_statistics(count="x")),
        "peer's statistics: a count below 0": (statistics, peer_statistics(count=-5)),
        "peer's statistics: a count of 5,000 digits": (statistics, peer_statistics(count=2**1000)),
    }
    return table


# -- the child ---------------------------------------------------------------------------------------------------------


def outcome(case: Case, folder: Path) -> dict[str, Any]:
    """What became of one case."""
    try:
        path = case.make(folder)
    except Exception as error:
        return {"name": case.name, "kind": "not made", "message": f"{type(error).__name__}: {error!s:.300}"}
    before, begin = sorted(folder.iterdir()), time.process_time()
    forget_peak()
    resting = status("VmRSS")
    found: dict[str, Any] = {"name": case.name, "kind": "accepted", "message": ""}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor's time, however busy the machine is
    signal.alarm(12 * SECONDS)
    try:
        case.door(path)
    except EXPECTED as error:
        found |= {"kind": "refused", "message": f"{type(error).__name__}: {error}"}
        if path.name not in str(error):
            found["kind"] = "refused without a name"
    except Late:
        found |= {"kind": "hung"}
    except BaseException as error:
        found |= {"kind": "raw", "message": f"{type(error).__name__}: {error}"}
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    found |= {"seconds": time.process_time() - begin, "megabytes": (status("VmHWM") - resting) // 2**20}
    if found["megabytes"] > MEGABYTES:
        found["kind"] = "large"
    if sorted(folder.iterdir()) != before:
        found["kind"] = "wrote"
    return found


def _use_all_doors() -> None:
    """What is imported late is imported before memory and time are measured."""
    for kind, door in {"ppo": ppo_in_env, "dqn": dqn_in_env, "sac": sac_in_env, "tqc": tqc, "sb3": ppo}.items():
        path = zipped(Path(os.environ["HOSTILE_FOLDER"]) / f"{kind}.zip", honest(kind))
        door(path)
    more = {"recurrent": recurrent_in_env, "table": table, "alphazero": alphazero, "reward": reward, "policy": policy}
    for kind, door in more.items():
        door(zipped(Path(os.environ["HOSTILE_FOLDER"]) / f"{kind}.zip", honest(kind)))


def chosen(share: str) -> list[Case]:
    """``"all"``; ``"part"``: each kind of file and each reader, but of long tables a share; else those so called."""
    found = list(cases())
    if share == "all":
        return found
    if share != "part":
        return [case for case in found if share in case.name]
    always = {*_sizes(), *_peers(), *_others()} - COSTLY
    return [case for number, case in enumerate(found) if case.name in always or number % 10 == 0]


COSTLY = {
    *("30000000 rows and ranks", "1e6 layers", "1e6 layers of a critic", "3e6 actions at once", "reward: 3e6 choices"),
    *("peer: bomb by its reader", "peer: a bomb within, by its reader", "peer: data of a bomb, by its reader"),
    *("observations of 3e6 choices", "statistics: lists"),
    *(f"{door}: {what}" for door in ("policy", "module") for what in ("1e6 layers", "3e6 choices")),
}
"""Cases that take a second each, and of which another one in the table is much like."""


def main(folder: Path, share: str = "all") -> None:
    os.environ["HOSTILE_FOLDER"] = str(folder)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    for maker in (honest_statistics, honest_module, honest_checkpoint):
        maker()
    _use_all_doors()
    limit = status("VmSize") + 4 * MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number, case in enumerate(chosen(share)):
        place = folder / str(number)
        place.mkdir()
        print(json.dumps(outcome(case, place)), flush=True)
        shutil.rmtree(place)
        if status("VmSize") > limit - 3 * MEGABYTES * 2**20:
            gc.collect()  # a model that was accepted, whose parts refer to each other: the next case needs its memory


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
