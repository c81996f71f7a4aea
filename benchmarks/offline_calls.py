"""What is measured of offline learners: updates a second on random data, and returns after learning from recorded ones.

Speed is that of the whole loop of each library on the same data.

CORL's files are programs: they are run as they are, with stand-ins for the libraries that they import besides torch and
numpy, and told to train for so many steps. What a program does before its first step is taken out by timing a short and
a long run.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

OBSERVATIONS, ACTIONS, EPISODE = 17, 6, 1000
CORL_FILES = {"BC": "any_percent_bc", "TD3BC": "td3_bc", "IQL": "iql", "CQL": "cql"}
"""Algorithm -> the file that has it."""
HUGE = 10**9


def random_rows(rows: int) -> dict[str, Any]:
    """Rows of the shapes of HalfCheetah, in D4RL's names."""
    import numpy as np

    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, OBSERVATIONS)).astype(np.float32)
    return {
        "observations": observations,
        "actions": rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "next_observations": np.roll(observations, -1, axis=0),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % EPISODE == EPISODE - 1,
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a number of updates, after as many to warm up."""
    run = {"polyak": _polyak, "d3rlpy": _d3rlpy, "corl": _corl}[job["library"]]
    seconds = run(job, random_rows(job["rows"]))
    return {"updates_per_s": job["updates"] / seconds, "seconds": seconds}


def _dataset(rows: dict[str, Any]) -> Any:
    """The rows as polyak has them."""
    import gymnasium as gym
    import numpy as np

    from polyak.experience import Dataset

    bounds = gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
    names = {"terminals": "terminations", "timeouts": "truncations"}
    return Dataset(**{names.get(name, name): column for name, column in rows.items()}, action_space=bounds)


def _polyak(job: dict[str, Any], rows: dict[str, Any]) -> float:
    import polyak

    data = _dataset(rows)
    options = {"policy_kwargs": {"net_arch": [256, 256]}, "batch_size": 256, "device": "cpu", "seed": 0}
    if job["algo"] == "CQL":
        options["bc_steps"] = 0  # so that every update is a whole one
    model = getattr(polyak, job["algo"])("MlpPolicy", data, **options, compile=True)
    model.learn(max(job["updates"], 20))
    began = time.perf_counter()
    model.learn(job["updates"])
    return time.perf_counter() - began


def _d3rlpy_parts(job: dict[str, Any], rows: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Learner, data and how to keep it quiet."""
    import d3rlpy

    names = {"BC": "BCConfig", "TD3BC": "TD3PlusBCConfig"}
    columns = {name: rows[name] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    data = d3rlpy.dataset.MDPDataset(**columns)
    config = getattr(d3rlpy.algos, names.get(job["algo"], f"{job['algo']}Config"))
    quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
    return config(batch_size=256, **job.get("settings", {})).create(device="cpu:0"), data, quiet


def _d3rlpy(job: dict[str, Any], rows: dict[str, Any]) -> float:
    algo, data, quiet = _d3rlpy_parts(job, rows)
    algo.fit(data, n_steps=max(job["updates"] // 4, 5), n_steps_per_epoch=HUGE, **quiet)
    began = time.perf_counter()
    algo.fit(data, n_steps=job["updates"], n_steps_per_epoch=job["updates"], **quiet)
    return time.perf_counter() - began


def _corl(job: dict[str, Any], rows: dict[str, Any]) -> float:
    for name, module in _stand_ins(rows).items():
        sys.modules[name] = module
    sys.path.insert(0, str(Path(job["corl"], "algorithms", "offline")))
    program = __import__(CORL_FILES[job["algo"]])

    def seconds(updates: int) -> float:
        options = {"env": "halfcheetah-medium-v2", "max_timesteps": updates, "eval_freq": HUGE, "device": "cpu"}
        known = {name: value for name, value in options.items() if name in program.TrainConfig.__annotations__}
        config = program.TrainConfig(**known, batch_size=256, buffer_size=2 * len(rows["rewards"]))
        for name in {"max_timesteps", "eval_freq"} - known.keys():  # called otherwise there
            raise RuntimeError(f"{program.__name__}.TrainConfig has no {name}")
        began = time.perf_counter()
        program.train(config)
        return time.perf_counter() - began

    short = max(job["updates"] // 10, 1)
    seconds(short)
    return seconds(job["updates"] + short) - seconds(short)


# -- returns -----------------------------------------------------------------------------------------------------------


def score(job: dict[str, Any]) -> dict[str, Any]:
    """Mean return of 20 deterministic episodes after some updates, and before and after some steps online."""
    import numpy as np

    with np.load(job["file"]) as file:
        rows = {name: file[name] for name in file.files}
    return (_polyak_score if job["library"] == "polyak" else _d3rlpy_score)(job, rows)


def _polyak_score(job: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    import polyak

    options = {"policy_kwargs": {"net_arch": [256, 256]}, "batch_size": 256, "device": "cpu", "seed": job["seed"]}
    model = getattr(polyak, job["algo"])("MlpPolicy", _dataset(rows), **options, **job["settings"])
    began = time.perf_counter()
    model.learn(job["updates"])
    seconds = time.perf_counter() - began
    online = []
    reached = mean_return(lambda observation: model.predict(observation, deterministic=True)[0])
    if job["online"] and job["algo"] not in ("BC", "CQL", "EDAC"):
        model.set_env("HalfCheetah-v5")
        for steps in (1000, job["online"] - 1000):
            model.learn(steps, reset_num_timesteps=False)
            online.append(mean_return(lambda observation: model.predict(observation, deterministic=True)[0]))
    return {"offline": reached, "online": online, "updates_per_s": job["updates"] / seconds}


def _d3rlpy_score(job: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    import d3rlpy

    d3rlpy.seed(job["seed"])
    algo, data, quiet = _d3rlpy_parts(job, rows)
    began = time.perf_counter()
    algo.fit(data, n_steps=job["updates"], n_steps_per_epoch=job["updates"], **quiet)
    seconds = time.perf_counter() - began
    reached = mean_return(lambda observation: algo.predict(observation[None])[0])
    return {"offline": reached, "online": [], "updates_per_s": job["updates"] / seconds}


def mean_return(act: Any, episodes: int = 20) -> float:
    """Of deterministic episodes on HalfCheetah.

    Args:
        act: observation [17] -> action [6].
        episodes: how many.
    """
    import gymnasium as gym

    env, total = gym.make("HalfCheetah-v5"), 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


# -- stand-ins ---------------------------------------------------------------------------------------------------------


class _Anything:
    """Whatever is asked of it, it does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> _Anything:
        return self

    def __getattr__(self, name: str) -> _Anything:
        return self


def _stand_ins(rows: dict[str, Any]) -> dict[str, ModuleType]:
    """Name -> module, for what a program imports besides torch and numpy."""
    import numpy as np

    space = SimpleNamespace(shape=(ACTIONS,), high=np.ones(ACTIONS), low=-np.ones(ACTIONS), seed=lambda seed: None)
    seen = SimpleNamespace(shape=(OBSERVATIONS,))
    env = SimpleNamespace(observation_space=seen, action_space=space, seed=lambda seed: None)
    gym, d4rl, pyrallis, wandb = map(ModuleType, ("gym", "d4rl", "pyrallis", "wandb"))
    vars(gym).update(make=lambda name: env, Env=object)
    vars(gym)["wrappers"] = SimpleNamespace(TransformObservation=lambda env, f: env, TransformReward=lambda env, f: env)
    vars(d4rl)["qlearning_dataset"] = lambda env: {name: np.array(column) for name, column in rows.items()}
    vars(pyrallis).update(wrap=lambda: lambda function: function, dump=_Anything())
    vars(wandb).update(init=_Anything(), log=_Anything(), run=_Anything())
    return {"gym": gym, "d4rl": d4rl, "pyrallis": pyrallis, "wandb": wandb}
