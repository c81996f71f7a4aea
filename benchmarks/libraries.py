"""Where each library keeps the names that the benchmarks need. Each function imports its library when called."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple


class Names(NamedTuple):
    """The part of a library that a worker uses."""

    algorithms: Any
    make_vec_env: Any
    make_atari_env: Any
    frame_stack: Any
    normalizer: Any
    normal_noise: Any
    her_buffer: Any
    bit_flipping: Any
    action_masker: Any


PEERS = {"sb3": "stable_baselines3", "contrib": "sb3_contrib", "sbx": "sbx"}
"""Where each peer keeps its algorithms."""


def load(library: str) -> Names:
    """The names of ``"polyak"``, ``"sb3"``, ``"contrib"`` or ``"sbx"`` (these two train in SB3's environments)."""
    if library == "polyak":
        algorithms, envs = import_module("polyak"), import_module("polyak.envs")
        noise, her = import_module("polyak.noise"), algorithms
        testing, vec_env = import_module("polyak.envs.testing"), envs
        masker = envs.ActionMasker
    elif library in PEERS:
        algorithms = import_module(PEERS[library])
        envs = import_module("stable_baselines3.common.env_util")
        noise = import_module("stable_baselines3.common.noise")
        her = import_module("stable_baselines3")
        testing = import_module("stable_baselines3.common.envs")
        vec_env = import_module("stable_baselines3.common.vec_env")
        masker = import_module("sb3_contrib.common.wrappers").ActionMasker if library == "contrib" else None
    else:
        raise ValueError(f"library must be polyak or one of {sorted(PEERS)}, got {library!r}")
    return Names(
        algorithms,
        envs.make_vec_env,
        envs.make_atari_env,
        vec_env.VecFrameStack,
        vec_env.VecNormalize,
        noise.NormalActionNoise,
        her.HerReplayBuffer,
        testing.BitFlippingEnv,
        masker,
    )


def versions() -> dict[str, str]:
    """Versions of the packages that a figure depends on, where installed."""
    names = (
        "polyak",
        "stable-baselines3",
        "sb3-contrib",
        "sbx-rl",
        "d3rlpy",
        "torch",
        "jax",
        "numpy",
        "gymnasium",
        "mujoco",
        "ale-py",
        "envpool",
        "numba",
        "ray",
    )
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
