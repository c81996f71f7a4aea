"""One run in a fresh process: ``python worker.py JOB.json`` does the job and writes its result as JSON.

The job names the library, the task and what to measure:

* ``speed``: start-up seconds, whole-``learn`` environment steps per second, peak memory, and then, on the buffer that
  the training filled, milliseconds per gradient step;
* ``whole``: seconds from the start of the process to the end of a short training;
* ``learn``: train one seed of a learning task and evaluate it deterministically;
* ``curve``: the same with evaluations on the way, until the steps or the seconds are over;
* ``replay``: microseconds per call of the replay buffers;
* ``vector_env``: environment steps per second of a vector of environments, without any learning;
* ``offline``: updates per second of an offline learner;
* ``offline_score``: the return that an offline learner reaches;
* ``from_disk``: updates per second on a set that is in memory or on the disk;
* ``scale``: seconds to begin, environment steps per second and seconds to a return, by a config that builds;
* ``scaling``: environment steps per second of runners whose environments sleep;
* ``ways``: steps per CPU second of a plain training and of one in another way;
* ``ways_others``: CPU seconds of ``predict``, an evaluation, saving and loading.

It runs under each library's own interpreter, so it imports nothing but the standard library before the clock starts.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1024.0
"""``ru_maxrss`` is in KiB on Linux and in bytes on macOS."""


def peak_memory_mib() -> float:
    """The largest resident set that this process has had."""
    unit = MIB * MIB if sys.platform == "darwin" else MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def on_first_step(env: Any, note: Any) -> None:
    """Call ``note`` just before the first environment step, then get out of the way (no cost per step)."""
    names = ("step", "step_async")
    originals = {name: getattr(env, name) for name in names}

    def hook(name: str) -> Any:
        def call(*args: Any) -> Any:
            if names[0] in vars(env):
                note()
                for each in names:
                    delattr(env, each)
            return originals[name](*args)

        return call

    for name in names:
        setattr(env, name, hook(name))


def gradient_steps_per_train(model: Any) -> int:
    """How many optimizer steps one ``train()`` of an on-policy model takes."""
    epochs = getattr(model, "n_epochs", 1)
    rollout = model.n_steps * model.n_envs
    return epochs * -(-rollout // (getattr(model, "batch_size", None) or rollout))


def time_gradient_steps(model: Any, budget_s: float) -> dict[str, float]:
    """Milliseconds per gradient step: ``train()`` again and again on the buffer as ``learn`` left it.

    Nothing of an algorithm that takes no such step.
    """
    if not hasattr(model, "train"):
        return {}
    if hasattr(model, "replay_buffer"):
        steps = 100
        train = lambda: model.train(gradient_steps=steps, batch_size=model.batch_size)  # noqa: E731
    else:
        steps = gradient_steps_per_train(model)
        train = model.train
    train()
    took: list[float] = []
    while len(took) < 3 or sum(took) < budget_s:
        start = time.perf_counter()
        train()
        took.append(time.perf_counter() - start)
    took.sort()
    return {"ms_per_gradient_step": 1e3 * took[len(took) // 2] / steps, "gradient_steps_timed": steps * len(took)}


def masked(name: str, names: Any) -> Any:
    """CartPole in which a cart that is fast may not be pushed on."""
    import gymnasium
    import numpy as np

    def allowed(env: Any) -> Any:
        speed = env.unwrapped.state[1]
        return np.array([speed > -1, speed < 1])

    return names.action_masker(gymnasium.make(name), allowed)


def measure_speed(job: dict[str, Any]) -> dict[str, Any]:
    """Train a benchmark task once and time its parts."""
    import libraries

    task, spawned = job["task"], job["spawned_at"]
    names = libraries.load(job["library"])
    if task["atari"]:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        env = names.make_atari_env(task["env"], n_envs=task["n_envs"], seed=job["seed"])
        env = names.frame_stack(env, n_stack=4)
    elif task["masked"]:
        env = names.make_vec_env(lambda: masked(task["env"], names), n_envs=task["n_envs"], seed=job["seed"])
    else:
        env = names.make_vec_env(task["env"], n_envs=task["n_envs"], seed=job["seed"])
    marks: dict[str, float] = {}
    on_first_step(env, lambda: marks.setdefault("first_step_s", time.time() - spawned))
    algorithm = getattr(names.algorithms, task["algo"])
    device = {} if job["library"] == "sbx" else {"device": "cpu"}
    model = algorithm(task["policy"], env, seed=job["seed"], **device, **task["settings"])
    start_up = time.time() - spawned
    began = time.perf_counter()
    model.learn(job["steps"])
    learn_s = time.perf_counter() - began
    result = {
        "start_up_s": start_up,
        "first_step_s": marks["first_step_s"],
        "learn_s": learn_s,
        "env_steps": model.num_timesteps,
        "env_steps_per_s": model.num_timesteps / learn_s,
        "peak_memory_mib": peak_memory_mib(),
    }
    return result | time_gradient_steps(model, job["gradient_budget_s"])


def measure_whole(job: dict[str, Any]) -> dict[str, Any]:
    """A short program from the start of its process to its end: seconds of the clock and of the processor."""
    os.environ["POLYAK_CACHE"] = os.path.join(os.getcwd(), "cache")  # empty, and gone afterwards
    import libraries

    task, names = job["task"], libraries.load("sb3" if job["library"] == "contrib" else job["library"])
    env = names.make_vec_env(task["env"], n_envs=task["n_envs"], seed=job["seed"])
    model = getattr(names.algorithms, task["algo"])(
        task["policy"], env, seed=job["seed"], device="cpu", **task["settings"], **job["settings"]
    )
    model.learn(job["steps"])
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    engine = getattr(model, "engine", None)
    return {
        "wall_s": time.time() - job["spawned_at"],
        "cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in spent),
        "env_steps": model.num_timesteps,
        "gradient steps": "" if engine is None else engine.status,
    }


def learning_library(name: str) -> Any:
    """The names that a learning task needs."""
    import learning_tasks
    import libraries

    names = libraries.load(name)
    found = names.algorithms, names.make_vec_env, names.normal_noise, names.her_buffer, names.bit_flipping
    return learning_tasks.Library(*found, normalizer=names.normalizer)


def measure_learning(job: dict[str, Any]) -> dict[str, Any]:
    """Train one seed of a learning task; its evaluation scores and its last training returns."""
    import learning_tasks

    library = learning_library(job["library"])
    task = learning_tasks.Task(**job["task"])
    model = learning_tasks.make_model(task, library, job["seed"])
    began = time.perf_counter()
    model.learn(task.steps)
    learn_s = time.perf_counter() - began
    training = [float(episode["r"]) for episode in model.ep_info_buffer][-job["training_window"] :]
    env = learning_tasks.make_env(task, library, job["seed"] + learning_tasks.EVALUATION_SEED)
    scores = learning_tasks.evaluate(task, model, env)
    return {
        "score": sum(scores) / len(scores),
        "scores": scores,
        "training_return": sum(training) / max(len(training), 1),
        "env_steps": model.num_timesteps,
        "learn_s": learn_s,
    }


def measure_curve(job: dict[str, Any]) -> dict[str, Any]:
    """Train one seed of a learning task in pieces; [steps, seconds of training, mean of 5 episodes] after each."""
    from dataclasses import replace

    import learning_tasks

    library = learning_library(job["library"])
    task = learning_tasks.Task(**job["task"])
    model = learning_tasks.make_model(task, library, job["seed"])
    env = learning_tasks.make_env(task, library, job["seed"] + learning_tasks.EVALUATION_SEED)
    seconds, points = 0.0, []
    while model.num_timesteps < task.steps and seconds < job["seconds"]:
        began = time.perf_counter()
        model.learn(min(job["every"], task.steps - model.num_timesteps), reset_num_timesteps=False)
        seconds += time.perf_counter() - began
        scores = learning_tasks.evaluate(replace(task, episodes=5), model, env)
        points.append([model.num_timesteps, seconds, sum(scores) / len(scores)])
    scores = learning_tasks.evaluate(task, model, env)
    return {
        "score": sum(scores) / len(scores),
        "scores": scores,
        "points": points,
        "env_steps": model.num_timesteps,
        "learn_s": seconds,
    }


def measure_replay(job: dict[str, Any]) -> dict[str, Any]:
    """Time the replay buffers."""
    import replay_calls

    return replay_calls.measure(job)


def measure_vector_env(job: dict[str, Any]) -> dict[str, Any]:
    """Step a vector of environments with random actions."""
    import vector_env_makers

    return vector_env_makers.measure(job)


def measure_offline(job: dict[str, Any]) -> dict[str, Any]:
    """Time the updates of an offline learner."""
    import offline_calls

    return offline_calls.measure(job)


def measure_offline_score(job: dict[str, Any]) -> dict[str, Any]:
    """What an offline learner reaches."""
    import offline_calls

    return offline_calls.score(job)


def measure_from_disk(job: dict[str, Any]) -> dict[str, Any]:
    """Updates a second from a set in memory or on the disk."""
    import from_disk_calls

    return from_disk_calls.measure(job)


def measure_atari(job: dict[str, Any]) -> dict[str, Any]:
    """Rainbow's speed and memory on a game."""
    import atari_calls

    return atari_calls.measure(job)


def measure_scale(job: dict[str, Any]) -> dict[str, Any]:
    """Build an algorithm by its config, and train it."""
    import scale_calls

    return scale_calls.measure(job)


def measure_scaling(job: dict[str, Any]) -> dict[str, Any]:
    """Collect by runners in processes of their own."""
    import scale_calls

    return scale_calls.scaling(job)


def measure_ways(job: dict[str, Any]) -> dict[str, Any]:
    """Train plainly and in another way, by turns."""
    import ways_calls

    return ways_calls.measure(job)


def measure_ways_others(job: dict[str, Any]) -> dict[str, Any]:
    """Predict, evaluate, save and load."""
    import ways_calls

    return ways_calls.measure_others(job)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, str(Path(__file__).parent))
    before = os.getloadavg()
    measures = {
        "speed": measure_speed,
        "whole": measure_whole,
        "learn": measure_learning,
        "curve": measure_curve,
        "replay": measure_replay,
        "vector_env": measure_vector_env,
        "offline": measure_offline,
        "offline_score": measure_offline_score,
        "from_disk": measure_from_disk,
        "atari": measure_atari,
        "scale": measure_scale,
        "scaling": measure_scaling,
        "ways": measure_ways,
        "ways_others": measure_ways_others,
    }
    result = measures[job["measure"]](job)
    import libraries

    result |= {
        "load_before": before,
        "load_after": os.getloadavg(),
        "versions": libraries.versions(),
        "threads": job["threads"],
    }
    Path(job["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
