"""Do trainings end with the same numbers as before a change?

    python benchmarks/equal_trainings.py record before.txt             # with one version of the package
    python benchmarks/equal_trainings.py compare before.txt            # with another: names what differs
    python benchmarks/equal_trainings.py compare before.txt ppo sac    # some of them

A training is told by a hash of what it ends with: the file that the model would be saved to (weights, optimizers, what
is under way, random states), replay and rollout, counters, finished episodes, what callbacks saw and what was logged.
Times are left out. Numbers of one machine and version of torch are compared with each other, never with those of
another: this is a tool for moving code, not a test of digits.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch

import polyak
from polyak import CQL, DDPG, DQN, GAIL, MBPO, PPO, SAC, TD3, MaskablePPO, RecurrentPPO, make_vec_env
from polyak.algorithms import REGISTRY, get
from polyak.callbacks import BaseCallback, EvalCallback
from polyak.envs import VecNormalize
from polyak.envs.tensor import TensorCartPole
from polyak.envs.testing import BitFlippingEnv, InvalidActionEnvDiscrete
from polyak.experience import Dataset, HerReplayBuffer, RolloutBuffer, collect
from polyak.noise import NormalActionNoise

CASES: dict[str, Callable[[], str]] = {}
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16, 16]}, "seed": 1, "device": "cpu", "compile": False}
OFF: dict[str, Any] = {"learning_starts": 50, "buffer_size": 1000, "batch_size": 16, **SMALL}
ON: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, **SMALL}
ROLLOUT = ("advantages", "returns", "values", "log_probs", "rewards", "actions", "final_values")
LEFT_OUT = {"start_time", "versions", "system_info", "t", "time_elapsed", "seconds"}
"""Entries of a file that no two runs share."""


# -- what a training is told by ---------------------------------------------------------------------------------------


def trial(cls: Any) -> dict[str, Any]:
    """Arguments of a small model; earlier versions had them in the class."""
    if hasattr(cls, "trial"):
        return dict(cls.trial())
    from tests.trials import trial as here

    return here(cls)


def digest(model: Any, *more: Any) -> str:
    """A hash of what a model has come to, and of further values."""
    state = hashlib.sha256()
    for value in (*_saved(model), *_experience(model), *_counters(model), *more):
        _add(state, value)
    return state.hexdigest()[:16]


def _saved(model: Any) -> Iterable[Any]:
    file = io.BytesIO()
    model.save(file)
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist()):
            content = archive.read(name)
            yield json.loads(content) if name.endswith(".json") else safetensors.numpy.load(content)


def _experience(model: Any) -> Iterable[Any]:
    if (replay := getattr(model, "replay_buffer", None)) is not None and hasattr(replay, "state_dict"):
        yield replay.state_dict()
    rollout = getattr(model, "rollout_buffer", None)
    yield {name: getattr(rollout, name) for name in ROLLOUT if hasattr(rollout, name)}
    if (generator := getattr(model, "generator", None)) is not None:
        yield generator.get_parameters()
        yield from _experience(generator)


def _counters(model: Any) -> Iterable[Any]:
    yield [model.num_timesteps, model._n_updates, model._episode_num, model._current_progress_remaining]
    yield [(float(episode["r"]), int(episode["l"])) for episode in model.ep_info_buffer]


def _add(state: Any, value: Any) -> None:
    if isinstance(value, dict):
        if "$pickle" in value:  # of a function: what it is called by says where it lies in memory
            return
        for key in sorted(value, key=str):
            if key in LEFT_OUT or str(key).endswith("/seconds"):
                continue
            state.update(str(key).encode())
            _add(state, value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            _add(state, part)
    elif isinstance(value, torch.Tensor):
        state.update(value.detach().cpu().numpy().tobytes())
    else:
        state.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())


class Seen(BaseCallback):
    """Notes what is in ``locals``, step by step; stops at a number of steps.

    Args:
        stop: ends training there.
        values: note what is computed when it is read, too.
        act: called with the model after each step.
    """

    def __init__(self, stop: int | None = None, values: bool = False, act: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.stop, self.values, self.act = stop, values, act
        self.rows: list[Any] = []

    def _on_step(self) -> bool:
        found = self.locals
        names = sorted(name for name in found if name not in ("self", "callback"))
        counts = [found.get(name) for name in ("n_steps", "num_collected_steps", "num_collected_episodes")]
        sums = [np.sum(np.asarray(found[name])) for name in ("rewards", "dones") if name in found]
        self.rows.append((self.num_timesteps, self.model._n_updates, [float(each) for each in sums], counts, names))
        if self.values:
            self.rows.append([found["values"].numpy().copy(), found["log_probs"].numpy().copy()])
        if self.act is not None:
            self.act(self.model)
        return self.stop is None or self.num_timesteps < self.stop

    def _on_rollout_start(self) -> None:
        self.rows.append("start")

    def _on_rollout_end(self) -> None:
        self.rows.append("end")


class Logged(BaseCallback):
    """Notes all that is logged but times, and looks at no step."""

    _reads_locals = False

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Any] = []

    def _on_training_start(self) -> None:
        dump = self.logger.dump

        def noted(step: int = 0) -> None:
            values = self.logger.name_to_value
            kept = {name for name in values if not name.startswith("time/")} | {"time/iterations", "time/episodes"}
            numbers = {name: np.asarray(values[name], dtype=float).tolist() for name in sorted(kept & set(values))}
            self.tables.append((step, numbers))
            dump(step)

        self.logger.dump = noted  # type: ignore[method-assign]

    def _on_step(self) -> bool:
        return True


# -- set-ups ----------------------------------------------------------------------------------------------------------


def case(run: Callable[[], str]) -> Callable[[], str]:
    """Let a function be a set-up, under its name."""
    CASES[run.__name__] = run
    return run


def trained(
    name: str, cls: Any, env: Any, steps: int, callback: Any = None, policy: str = "MlpPolicy", **how: Any
) -> None:
    """Let the training of a model be a set-up. ``env`` and ``callback`` are functions that make theirs."""

    def run() -> str:
        seen = None if callback is None else callback()
        model = cls(policy, env() if callable(env) else env, **how)
        model.learn(steps, callback=seen)
        return digest(model, getattr(seen, "rows", None), getattr(seen, "tables", None))

    CASES[name] = run


def at(steps: int, **values: Any) -> Callable[[Any], None]:
    """Something that sets hyper-parameters of a model at so many steps."""

    def act(model: Any) -> None:
        if model.num_timesteps == steps:
            for name, value in values.items():
                setattr(model, name, value)

    return act


def pendulum(n: int = 1) -> Any:
    """Some of them, seeded."""
    return make_vec_env("Pendulum-v1", n_envs=n, seed=1)


def cart_poles() -> Any:
    """Two, seeded."""
    return make_vec_env("CartPole-v1", n_envs=2, seed=1)


def flipping() -> Any:
    """Dict observations, and a goal."""
    return BitFlippingEnv(n_bits=4, continuous=True)


def evaluated() -> BaseCallback:
    """Evaluations elsewhere."""
    return EvalCallback(make_vec_env("Pendulum-v1", seed=5), eval_freq=80, n_eval_episodes=1, verbose=0)


def recorded() -> Dataset:
    """What a short training of SAC has experienced."""
    model = SAC("MlpPolicy", "Pendulum-v1", **OFF)
    model.learn(120)
    return Dataset.from_model(model)


class OwnRollout(RolloutBuffer):
    """As a user's own, which is asked at each step."""

    def add(self, *args: Any, **named: Any) -> None:
        super().add(*args, **named)


falling, softer = (lambda p: 1e-3 * p), (lambda p: 0.1 + 0.2 * p)
noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
rates = {"learning_rate": falling, "learning_rates": {"actor": 1e-4}}
trained("sac_seen", SAC, "Pendulum-v1", 150, Seen, **OFF)
trained("dqn_logged", DQN, "CartPole-v1", 300, Logged, **OFF)
trained("sac_sde", SAC, "Pendulum-v1", 150, use_sde=True, sde_sample_freq=16, **OFF)
trained("sac_episodes", SAC, "Pendulum-v1", 420, train_freq=(1, "episode"), gradient_steps=-1, **rates, **OFF)
trained("sac_changed", SAC, "Pendulum-v1", 250, lambda: Seen(act=at(120, batch_size=8, gamma=0.9, tau=0.1)), **OFF)
trained("sac_evaluated", SAC, "Pendulum-v1", 200, evaluated, **OFF)
trained("sac_normalised", SAC, lambda: VecNormalize(pendulum()), 150, **OFF)
trained("sac_ahead", SAC, lambda: VecNormalize(pendulum(2)), 160, overlap=True, **OFF)
trained("sac_shards", SAC, lambda: pendulum(2), 160, n_replay_shards=2, transport="local", **OFF)
trained("td3_noise", TD3, lambda: pendulum(2), 200, action_noise=noise, **OFF)
trained("tqc", polyak.TQC, "Pendulum-v1", 150, **OFF)
trained("sd3", polyak.SD3, "Pendulum-v1", 120, **OFF)
trained("mbpo", MBPO, "Pendulum-v1", 120, Seen, model_gradient_steps=10, **OFF)
trained("dqn", DQN, "CartPole-v1", 250, Seen, target_update_interval=50, train_freq=4, **OFF)
trained("dqn_priorities", DQN, "CartPole-v1", 200, prioritized=True, n_steps=3, **OFF)
trained("dqn_drawn_steps", DQN, "CartPole-v1", 200, n_steps=(1, 4), **OFF)
trained("dqn_runners", DQN, "CartPole-v1", 240, n_runners=2, transport="local", train_freq=4, **OFF)
trained("dqn_tensors", DQN, lambda: TensorCartPole(4), 500, Logged, target_update_interval=40, **OFF)
trained("dqn_masks", DQN, lambda: InvalidActionEnvDiscrete(dim=20, n_invalid_actions=10), 150, **OFF)
trained("c51", polyak.C51, "CartPole-v1", 200, **OFF)
hindsight = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 4}}
trained("ddpg_hindsight", DDPG, flipping, 200, policy="MultiInputPolicy", **hindsight, **OFF)
trained("cql", CQL, recorded, 60, batch_size=32, **SMALL)
trained("cql_stopped", CQL, recorded, 60, lambda: Seen(40), batch_size=32, **SMALL)
trained("cql_rates", CQL, recorded, 60, batch_size=32, **rates, **SMALL)

trained("ppo", PPO, "Pendulum-v1", 200, **ON)
trained("ppo_4", PPO, lambda: pendulum(4), 400, **ON)
trained("ppo_logged", PPO, "Pendulum-v1", 200, Logged, **ON)
trained("ppo_seen", PPO, lambda: pendulum(2), 200, Seen, **ON)
trained("ppo_values", PPO, "CartPole-v1", 200, lambda: Seen(values=True), **ON)
trained("ppo_target_kl", PPO, "Pendulum-v1", 200, target_kl=0.003, learning_rate=3e-3, **ON)
trained("ppo_penalty", PPO, "Pendulum-v1", 200, Logged, kl_coef=0.5, kl_target=0.01, **ON)
trained("ppo_schedules", PPO, "Pendulum-v1", 200, Logged, clip_range=softer, clip_range_vf=0.3, ent_coef=falling, **ON)
trained("ppo_sde", PPO, "Pendulum-v1", 150, use_sde=True, sde_sample_freq=8, **ON)
trained("ppo_normalised", PPO, lambda: VecNormalize(pendulum(2)), 200, **ON)
trained("ppo_dict", PPO, flipping, 150, policy="MultiInputPolicy", **ON)
trained("ppo_changed", PPO, "Pendulum-v1", 250, lambda: Seen(act=at(70, batch_size=8, n_steps=48, gamma=0.9)), **ON)
trained("ppo_runners", PPO, "CartPole-v1", 200, n_runners=2, transport="local", **ON)
trained("ppo_runners_seen", PPO, "CartPole-v1", 200, Seen, n_runners=2, transport="local", **ON)
trained("ppo_learners", PPO, "CartPole-v1", 200, n_learners=2, transport="local", **ON)
trained("ppo_tensors", PPO, lambda: TensorCartPole(4), 400, Logged, **ON)
trained("ppo_tensors_seen", PPO, lambda: TensorCartPole(4), 300, lambda: Seen(values=True), **ON)
trained("ppo_own_buffer", PPO, lambda: pendulum(2), 200, rollout_buffer_class=OwnRollout, **ON)
trained("a2c", polyak.A2C, lambda: pendulum(4), 300, Logged, **SMALL)
trained("trpo", polyak.TRPO, "Pendulum-v1", 150, Logged, n_steps=64, batch_size=32, n_critic_updates=3, **SMALL)
trained("reinforce", polyak.REINFORCE, cart_poles, 300, Seen, episodes_per_update=3, **SMALL)
masked = lambda: InvalidActionEnvDiscrete(dim=20, n_invalid_actions=10)  # noqa: E731
trained("maskable", MaskablePPO, masked, 200, Seen, **ON)
trained("recurrent", RecurrentPPO, cart_poles, 200, Seen, "MlpLstmPolicy", **ON)
trained("pqn", polyak.PQN, cart_poles, 400, Logged, batch_size=32, **SMALL)
trained("deep_sarsa", polyak.DeepSARSA, "CartPole-v1", 300, Logged, **SMALL)
turns = {"n_steps": 32, "asynchronous": False, **SMALL}
trained("impala", polyak.IMPALA, "CartPole-v1", 150, Seen, **turns)
trained("impala_runners", polyak.IMPALA, "CartPole-v1", 200, Seen, n_runners=2, transport="local", **turns)
trained("appo", polyak.APPO, cart_poles, 200, Logged, **turns)
trained("appo_runners", polyak.APPO, "CartPole-v1", 200, n_runners=2, transport="local", **turns)
trained("ars", polyak.ARS, "CartPole-v1", 400, Seen, seed=1, n_delta=4)
trained("simba", polyak.SimBa, "Pendulum-v1", 200, Seen, **OFF)


@case
def stopped_and_continued() -> str:
    """A callback stops, and another call of ``learn`` continues."""
    found = []
    for cls, how in ((SAC, OFF), (PPO, ON)):
        model, seen = cls("MlpPolicy", "Pendulum-v1", **how), Seen(150)
        model.learn(300, callback=seen)
        found.append(digest(model, seen.rows))
        model.learn(100, reset_num_timesteps=False)
        found.append(digest(model))
    return " ".join(found)


@case
def in_pieces() -> str:
    """Calls of ``learn`` that end in the middle of a schedule."""
    model = PPO("MlpPolicy", "Pendulum-v1", learning_rate=falling, **ON)
    for _ in range(3):
        model.learn(100, reset_num_timesteps=False)
    return digest(model)


def resumed(name: str, cls: Any, env: str, steps: int, at: int, policy: str = "MlpPolicy", **how: Any) -> None:
    """Let a set-up be a training that is saved on its way, and continued from the file in a fresh process."""

    def run() -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.zip")
            include = ["replay_buffer"] if "learning_starts" in how else []
            save = lambda model: model.save(path, include=include) if model.num_timesteps == at else None  # noqa: E731
            model = cls(policy, env, **how)
            model.learn(steps, callback=Seen(act=save))
            command = [sys.executable, __file__, "resume", str(path), cls.__name__, env, str(steps)]
            return f"{digest(model)} {subprocess.run(command, capture_output=True, text=True).stdout.strip()}"

    CASES[name] = run


def resume(path: str, name: str, env: str, steps: str) -> str:
    """Continue from a file."""
    model = getattr(polyak, name).load(path, env=env, resume=True)
    model.learn(int(steps) - model.num_timesteps, callback=Seen(), reset_num_timesteps=False)
    return digest(model)


resumed("sac_resumed", SAC, "Pendulum-v1", 150, 93, **OFF)
resumed("ppo_resumed", PPO, "Pendulum-v1", 160, 75, **ON)
resumed("recurrent_resumed", RecurrentPPO, "CartPole-v1", 96, 50, "MlpLstmPolicy", **ON)


@case
def evaluated_in_the_same() -> str:
    """The environments that are trained in are evaluated in, in the middle of a rollout."""
    found = []
    for cls, how in ((PPO, ON), (DQN, OFF)):
        env = cart_poles()
        model = cls("MlpPolicy", env, **how)
        model.learn(200, callback=EvalCallback(env, eval_freq=50, n_eval_episodes=2, verbose=0))
        found.append(digest(model))
    return " ".join(found)


@case
def another_policy() -> str:
    """A callback puts another policy in its place."""
    model, other = (PPO("MlpPolicy", "CartPole-v1", **{**ON, "seed": seed}) for seed in (1, 2))
    model.learn(96, callback=Seen(act=at(50, policy=other.policy)))
    return digest(model)


@case
def dataset_beside() -> str:
    """A dataset and its own experience."""
    model = SAC("MlpPolicy", "Pendulum-v1", dataset_share=0.5, **OFF)
    model.set_dataset(recorded())
    model.learn(120)
    return digest(model)


@case
def dataset_first() -> str:
    """A dataset alone, then acting; rewards are scaled."""
    how = {"batch_size": 32, "reward_scaling": (0.1, 1.0), "learning_starts": 50}
    model = polyak.IQL("MlpPolicy", recorded(), **how, **SMALL)
    model.learn(40)
    model.set_env(make_vec_env("Pendulum-v1", seed=7))
    model.learn(100)
    return digest(model)


def imitating(name: str, generator: str, kwargs: dict[str, Any]) -> None:
    """Let GAIL with this generator be a set-up."""

    def run() -> str:
        shown, seen = collect("Pendulum-v1", None, 400, seed=0), Seen()
        how: dict[str, Any] = {"generator": generator, "generator_kwargs": kwargs, "seed": 1, "device": "cpu"}
        model = GAIL("MlpPolicy", pendulum(2), demonstrations=shown, **how)
        model.learn(200, callback=seen)
        return digest(model, seen.rows)

    CASES[name] = run


imitating("gail_ppo", "ppo", {"n_steps": 32, "batch_size": 16, "n_epochs": 2})
imitating("gail_sac", "sac", {"learning_starts": 50, "buffer_size": 1000, "batch_size": 16})


def theirs(name: str, own: bool) -> None:
    """Let Stable-Baselines3's classes be set-ups, as they are or with overrides of a user's ``own``."""

    def run() -> str:
        from polyak.compat.sb3_face import algorithms

        found = []
        kinds: Any = (("PPO", "CartPole-v1", ON), ("SAC", "Pendulum-v1", OFF), ("DQN", "CartPole-v1", OFF))
        for kind, env, how in kinds:
            cls, how = getattr(algorithms, kind), {name: how[name] for name in how if name != "compile"}
            model = (overriding(cls) if own else cls)("MlpPolicy", env, **how)
            seen = Seen()
            model.learn(160, callback=seen)
            found.append(digest(model, seen.rows, getattr(model, "calls", None)))
        return " ".join(found)

    CASES[name] = run


def overriding(cls: Any) -> Any:
    """A class with what users override."""

    def collect_rollouts(self: Any, *args: Any, **named: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return cls.collect_rollouts(self, *args, **named)

    def train(self: Any, *args: Any, **named: Any) -> None:
        self.calls += 100
        cls.train(self, *args, **named)

    return type(cls.__name__, (cls,), {"collect_rollouts": collect_rollouts, "train": train})


theirs("theirs", own=False)
theirs("theirs_overridden", own=True)


def tried(name: str) -> None:
    """Let a short training of an algorithm as conformance tests try it be a set-up."""

    def run() -> str:
        cls = get(name)
        model = cls(**trial(cls))
        seen = Seen()
        model.learn(150, callback=seen)
        return digest(model, seen.rows)

    CASES[f"trial_{name}"] = run


for _name in REGISTRY:
    tried(_name)


# -- the tool ---------------------------------------------------------------------------------------------------------


def outcome(name: str) -> str:
    """What a set-up comes to; an error is one, too."""
    try:
        return CASES[name]()
    except Exception as error:  # what fails in both versions is no difference
        return f"{type(error).__name__} {str(error)[:100]}".replace("\n", " ")


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare", "resume"])
    parser.add_argument("file")
    parser.add_argument("names", nargs="*", help="set-ups; without any: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.what == "resume":
        print(resume(options.file, *options.names))
        return
    names, path = options.names or list(CASES), Path(options.file)
    if options.what == "record":
        with path.open("a") as file:
            for name in names:
                file.write(f"{name}\t{outcome(name)}\n")
                file.flush()
        return
    before = dict(line.split("\t", 1) for line in path.read_text().splitlines())
    different = []
    for name in names:
        if (now := outcome(name)) != (then := before.get(name)):
            different.append(name)
            print(f"{name}: {then} before, {now} now", flush=True)
    print(f"{len(names) - len(different)} of {len(names)} equal")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
