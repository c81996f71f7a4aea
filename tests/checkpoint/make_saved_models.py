"""Writes ``saved_models``: one small file per algorithm, with answers that its loader must repeat.

Run once per generation of the file format, as ``python -m tests.checkpoint.make_saved_models``. Files that are there
already are left as they are: what older code wrote is the point of them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyak.algorithms import REGISTRY, get
from polyak.algorithms.alphazero import AlphaZero
from polyak.envs import BitFlippingEnv, VecNormalize, make_vec_env
from tests.trials import trial

FOLDER = Path(__file__).parent / "saved_models"
NETWORKS = {"policy_kwargs": {"net_arch": [16, 16]}}
STEPS = 130


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Name of the file -> algorithm, and how it is constructed."""
    found = {name: (name, dict(trial(get(name)))) for name in REGISTRY}
    pendulum = make_vec_env("Pendulum-v1", n_envs=2)
    found["ppo_sde_normalized"] = (
        "ppo",
        {
            "policy": "MlpPolicy",
            "env": VecNormalize(pendulum),
            "n_steps": 32,
            "batch_size": 32,
            "use_sde": True,
            **NETWORKS,
        },
    )
    goals = {"policy": "MultiInputPolicy", "env": BitFlippingEnv(n_bits=4, continuous=True), "learning_starts": 20}
    found["sac_dict"] = ("sac", {**goals, "batch_size": 16, "buffer_size": 200, **NETWORKS})
    return found


def observations(model: Any) -> Any:
    """Eight that the model may be asked about: of a game only boards that can be."""
    if isinstance(model, AlphaZero):
        return model.env.observe(model.self_play.positions.repeat(8, axis=0)[:8])
    space = model.observation_space
    space.seed(7)
    rows = [space.sample() for _ in range(8)]
    return (
        {key: np.stack([row[key] for row in rows]) for key in rows[0]} if isinstance(rows[0], dict) else np.stack(rows)
    )


def answers(model: Any) -> dict[str, np.ndarray]:
    """Observations and the model's actions, as arrays by name."""
    asked = observations(model)
    named = {f"obs/{key}": part for key, part in asked.items()} if isinstance(asked, dict) else {"obs": asked}
    return {**named, "actions": np.asarray(model.predict(asked, deterministic=True)[0])}


def constructed(algorithm: type, options: dict[str, Any]) -> Any:
    """A model, with networks that are as small as can be where the options say how large they are."""
    sizes = options.get("policy_kwargs", {})
    small = {**sizes, "net_arch": [8, 8]} if "net_arch" in sizes else sizes
    return algorithm(**{**options, "policy_kwargs": small} if sizes else options)


def main() -> None:
    """Write the files that are missing."""
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name, (algorithm, options) in cases().items():
        path = FOLDER / f"{name}.zip"
        if path.exists():
            continue
        model = constructed(get(algorithm), {**options, "seed": 1})
        model.learn(STEPS)
        model.save(path)
        np.savez_compressed(path.with_suffix(".npz"), **answers(get(algorithm).load(path)))


if __name__ == "__main__":
    main()
