"""Files that are made to run code, to take memory or time, or to end in an error of Python's own.

They are settings, run folders, studies, datasets, models and checkpoints, each with the command or the call that meets
it. `test_files_of_others` has them met, one after the other in one process, from a folder that holds modules which
write a file when they are imported.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyak import DQN, PPO, SAC, VecNormalize, make_vec_env
from polyak.experience import Dataset
from polyak.zoo.cli import main

Act = Callable[[Path], Any]
PEERS = Path(__file__).parents[1] / "compat" / "data"
RED = "\\e[31mred\\a"
"""A command for a terminal, as YAML writes it."""


# -- settings, and what a run folder says ------------------------------------------------------------------------------


def settings(block: str, *words: str, algo: str = "ppo", env: str = "CartPole-v1") -> Act:
    """Training with a block of settings."""

    def act(folder: Path) -> None:
        lines = "".join(f"  {line}\n" for line in block.splitlines())
        (folder / "of_others.yml").write_text(f"{env}:\n{lines}")
        how = ["-n", "1", "--eval-freq", "-1", "--device", "cpu", "--verbose", "0", *words]
        main(["train", "--algo", algo, "--env", env, "--conf-file", "of_others.yml", *how])

    return act


def run_folder(arguments: str, algo: str = "ppo") -> Act:
    """Playing an agent whose run has this args.yml."""

    def act(folder: Path) -> None:
        run = folder / "logs" / algo / "CartPole-v1_1"
        (run / "CartPole-v1").mkdir(parents=True)
        (run / "CartPole-v1.zip").write_bytes(b"no model")
        (run / "CartPole-v1" / "args.yml").write_text(arguments)
        main(["enjoy", "-f", "logs", "-n", "1", "--algo", algo])

    return act


def trained_agents(algo: str, env: str = "CartPole-v1") -> Act:
    """Measuring the agents of a folder."""

    def act(folder: Path) -> None:
        for name in (algo, algo.rpartition(":")[2]):
            settings_of_run = folder / "agents" / name / f"{env}_1" / env
            settings_of_run.mkdir(parents=True, exist_ok=True)
            (settings_of_run / "args.yml").write_text(f"env: {env}")
        main(["benchmark-agents", "--log-dir", "agents", "--no-hub", "-n", "1"])

    return act


def study(name: str = "ppo_CartPole-v1", **chosen: Any) -> Act:
    """Training with the settings of a trial."""

    def act(folder: Path) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        kept = JournalStorage(JournalFileBackend("of_others.journal"))
        trials = optuna.create_study(storage=kept, study_name=name, direction="maximize")
        trial = trials.ask()
        trial.set_user_attr("settings", chosen)
        trials.tell(trial, 1.0)
        main(["train", "--trial-id", "0", "--storage", "of_others.journal", "-n", "1", "--verbose", "0"])

    return act


# -- datasets ----------------------------------------------------------------------------------------------------------


def recorded(env_id: Any, suffix: str = "npz", command: str = "train --algo bc -n 1 --dataset") -> Act:
    """A command on a dataset that says that it was recorded there."""

    def act(folder: Path) -> None:
        ends = np.arange(8) % 4 == 3
        data = Dataset(np.zeros((8, 2), np.float32), np.linspace(-1, 1, 8)[:, None], np.zeros(8), ends)
        data.env_id = env_id
        data.save(f"of_others.{suffix}")
        main([*command.split(), f"of_others.{suffix}"])

    return act


def recorded_by_minari(env_id: str) -> Act:
    """Training on a folder of Minari's."""

    def act(folder: Path) -> None:
        data = Dataset(np.zeros((8, 2), np.float32), np.linspace(-1, 1, 8)[:, None], np.zeros(8), np.arange(8) % 4 == 3)
        data.env_id = "CartPole-v1"
        data.save("of_others-v0", format="minari")
        about = folder / "of_others-v0" / "data" / "metadata.json"
        described = json.loads(about.read_text())
        spec = json.loads(described["env_spec"]) | {"id": env_id, "entry_point": "beside:X"}
        about.write_text(json.dumps(described | {"env_spec": json.dumps(spec)}))
        main(["train", "--algo", "bc", "-n", "1", "--dataset", "of_others-v0"])

    return act


# -- models ------------------------------------------------------------------------------------------------------------


@cache
def honest(kind: str) -> dict[str, bytes]:
    """The members of a model's file."""
    if kind == "sb3":
        return members(PEERS / "ppo.zip")
    small: dict[str, Any] = {"device": "cpu", "policy_kwargs": {"net_arch": [4]}}
    cls, env = {"ppo": (PPO, "CartPole-v1"), "sac": (SAC, "Pendulum-v1"), "dqn": (DQN, "CartPole-v1")}[kind]
    file = io.BytesIO()
    cls("MlpPolicy", env, **small).save(file)
    return members(file)


def members(file: Any) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, content: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in content.items():
            archive.writestr(name, part)


def model(kind: str, *keys: str | int, value: Any, command: str = "") -> Act:
    """Loading a model with another value in its description; or a command on it."""

    def act(folder: Path) -> None:
        described = dict(honest(kind))
        name = "data" if kind == "sb3" else "polyak.json"
        info = json.loads(described[name])
        inner = info
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        write(folder / "of_others.zip", {**described, name: json.dumps(info).encode()})
        if command:
            main([*command.split(), "of_others.zip"])
        {"sac": SAC, "dqn": DQN}.get(kind, PPO).load("of_others.zip", device="cpu")

    return act


def hyper(kind: str, name: str, value: Any, command: str = "") -> Act:
    return model(kind, "hyperparameters", name, value=value, command=command)


def part(name: str, content: Callable[[], bytes]) -> Act:
    """Loading a model of Stable-Baselines3's with another member."""

    def act(folder: Path) -> None:
        write(folder / "of_others.zip", {**honest("sb3"), name: content()})
        PPO.load("of_others.zip", device="cpu")

    return act


class Runs:
    """Runs code when it is unpickled."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return exec, (self.code,)


def pickled() -> bytes:
    return pickle.dumps(Runs("open('ran', 'w').write('\x1b[31m')"))


def saved_by_torch() -> bytes:
    file = io.BytesIO()
    torch.save({"log_std": Runs("open('ran', 'w')")}, file)
    return file.getvalue()


def statistics(folder: Path) -> None:
    (folder / "of_others.pkl").write_bytes(pickled())
    VecNormalize.load("of_others.pkl", make_vec_env("CartPole-v1"))


def replay(folder: Path) -> None:
    (folder / "of_others.pkl").write_bytes(pickled())
    Dataset.load("of_others.pkl")


@cache
def checkpoint() -> dict[str, bytes]:
    import tempfile

    from polyak.compat.rllib_face import PPOConfig

    config = PPOConfig().environment("CartPole-v1").training(train_batch_size_per_learner=64, minibatch_size=64)
    algorithm = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_algo()
    with tempfile.TemporaryDirectory() as folder:
        algorithm.save_to_path(folder)
        algorithm.stop()
        return members(Path(folder) / "model.zip")


def config(**values: Any) -> Act:
    """Restoring a checkpoint of RLlib's face whose config says otherwise."""

    def act(folder: Path) -> None:
        from polyak.compat.rllib_face import Algorithm

        content = dict(checkpoint())
        described = json.loads(content["algorithm.json"])
        described["config"] |= values
        (folder / "of_others").mkdir()
        write(folder / "of_others" / "model.zip", {**content, "algorithm.json": json.dumps(described).encode()})
        Algorithm.from_checkpoint("of_others")

    return act


def linked_run(folder: Path) -> None:
    """The settings of a run are a link to a file of the user's."""
    settings_of_run = folder / "logs" / "ppo" / "CartPole-v1_1" / "CartPole-v1"
    settings_of_run.mkdir(parents=True)
    (settings_of_run.parent / "CartPole-v1.zip").write_bytes(b"no model")
    (settings_of_run / "args.yml").symlink_to(shutil.which("sh") or "/bin/sh")
    main(["enjoy", "-f", "logs", "-n", "1"])


MANY = 10**18
LAKE = "FrozenLake-v1"
FROZEN = "S" + "F" * 99
SWITCHING = "polyak.compat.startup.sitecustomize"
EVALUATION = "callback: [{polyak.callbacks.evaluating.EvalCallback: {eval_env: %s}}]"

CASES: dict[str, Act] = {
    # -- numbers of settings
    "a frequency that is a float": settings("env_kwargs: {simulation_frequency: 1.0e+12}"),
    "a frequency to divide by": settings("env_kwargs: {policy_frequency: 1.0e-300}"),
    "a duration without end": settings("env_kwargs: {config: {duration: .inf}}"),
    "a number that is none": settings("env_kwargs: {gravity: .nan}"),
    "a length beyond 64 bits": settings("env_kwargs: {max_episode_steps: 10000000000000000000}"),
    "a map of aliased rows": settings(f"env_kwargs: {{desc: [&a {FROZEN * 8}{', *a' * 900}]}}", env=LAKE),
    "a map that is long by itself": settings(f"env_kwargs: {{desc: [{', '.join([FROZEN] * 200)}]}}", env=LAKE),
    "a map in a thousand environments": settings(
        f"env_kwargs: {{desc: [{', '.join([FROZEN] * 90)}]}}\nn_envs: 1000", env=LAKE
    ),
    "frames of a thousand environments": settings(
        "n_envs: 1000\nframe_stack: 1000\nenv_wrapper: [{gymnasium.wrappers.ResizeObservation: {shape: [100, 100]}}]"
    ),
    "frames of large images": settings(
        "env_wrapper: [{gymnasium.wrappers.ResizeObservation: {shape: [1000, 1000]}}, "
        "{gymnasium.wrappers.FrameStackObservation: {stack_size: 1000}}]"
    ),
    "a shape in a dict of dicts": settings("env_kwargs: {a: {b: {shape: [999, 999, 999]}}}"),
    "more learners than a machine has": settings("n_learners: 1000"),
    "runners that are a float": settings("n_runners: 1.0e+18"),
    "shards of a buffer": settings("n_replay_shards: 1000", algo="dqn"),
    "a batch that nothing holds": settings("batch_size: 1000000000000"),
    "a window of steps": settings("n_steps: 100000000000", algo="dqn"),
    "a period of 10**18": settings("train_freq: [1000000000000000000, step]", algo="dqn"),
    "critics in their hundreds of thousands": settings(
        "policy_kwargs: {n_critics: 1000000}", algo="sac", env="Pendulum-v1"
    ),
    "a list of lists that is one list": settings(
        f"policy_kwargs: {{net_arch: {{pi: [&a [{'2, ' * 100}2]{', *a' * 99}]}}}}"
    ),
    "goals without end": settings("replay_buffer_kwargs: {n_sampled_goal: 1000000000}", algo="dqn"),
    # -- words of settings
    "a policy that is a module": settings("policy: 'this:1'"),
    "a policy with a dot": settings("policy: this.1"),
    "a rate that is a module": settings("learning_rate: 'this:1'"),
    "a coefficient that is a module": settings("ent_coef: beside.X", algo="sac", env="Pendulum-v1"),
    "a buffer of a module": settings("replay_buffer_class: 'beside:Buffer'", algo="dqn"),
    "a buffer's file": settings("replay_buffer_kwargs: {path: anything}", algo="dqn"),
    "a device that is a module": settings("device: 'this:1'"),
    "a folder among several": settings("tensorboard_log: [logs, more]"),
    "an optimizer's option": settings("policy_kwargs: {optimizer_kwargs: {lr: os.system}}"),
    "a key above the folder": settings("normalize: {norm_obs_keys: ['../x']}"),
    "an environment with a space behind": settings(EVALUATION % "'this:Env-v0 '"),
    "an environment with a dot": settings(EVALUATION % "this.1"),
    "an environment in a list": settings(EVALUATION % "['this:1']"),
    "a colon that is wider": settings("env_kwargs: {a: 'this\uff1a1'}"),
    "text in text": settings("env_kwargs: \"dict(a=dict(b='this:1'))\""),
    "a name that is code": settings("env_kwargs: {'this:1': 1}"),
    "a command for the terminal": settings(f'"{RED}": 1'),
    "a command in a word": settings(f'env_kwargs: {{a: "{RED}"}}'),
    # -- classes of settings
    "a module that changes the program": settings(f"callback: {SWITCHING}.X"),
    "a module that runs programs": settings("callback: polyak.compat.run.run"),
    "what finds code by its name": settings("env_wrapper: gymnasium.envs.registration.load_env_creator"),
    "two dots": settings("env_wrapper: gymnasium.wrappers..beside.X"),
    "a colon in a path": settings("env_wrapper: 'gymnasium.wrappers.beside:X'"),
    "a module of torch's": settings("env_wrapper: torch.nn.Module"),
    "a reader of datasets": settings("callback: [{polyak.experience.Dataset: {path: x}}]"),
    "a class within a class": settings("env_wrapper: polyak.envs.Monitor.__init__"),
    # -- run folders
    "a module before a known name": run_folder("env: 'this:CartPole-v1'"),
    "a file before a known name": run_folder("env: 'beside.py:CartPole-v1'"),
    "an algorithm of a module": run_folder("algo: 'beside:Mine'", algo="mine"),
    "a package that changes the program": run_folder(f"env: CartPole-v1\ngym_packages: [{SWITCHING}]"),
    "a package beside the logs": run_folder("env: CartPole-v1\ngym_packages: [minigrid]"),
    "a file for a package": run_folder("env: CartPole-v1\ngym_packages: [./beside.py]"),
    "a number without end": run_folder("env: CartPole-v1\nenv_kwargs: {sutton_barto_reward: 1.0e+300}"),
    "settings that are a link": linked_run,
    "an algorithm that is a folder's name": trained_agents("this:ppo"),
    "an environment that lies here": trained_agents("ppo", "MiniGrid-Empty-5x5-v0"),
    # -- studies
    "a study's wrapper": study(env_wrapper="beside.X"),
    "a study's environment": study(env_kwargs={"a": "this:1"}),
    "a study's processes": study(n_learners=10_000),
    "a study's name": study("\x1b[31mred"),
    # -- datasets
    "a dataset of a module": recorded("beside:Env-v0"),
    "a dataset of a word": recorded("this.1"),
    "a dataset of a space": recorded("this:Env-v0 "),
    "a dataset of what lies here": recorded("MiniGrid-Empty-5x5-v0"),
    "a dataset of a command": recorded("\x1b[31mred"),
    "a dataset of a long name": recorded("x" * 1_000_000),
    "a table of a module": recorded("pack/beside.py:Env", "parquet"),
    "a dataset to search on": recorded("this:1", command="tune --algo bc -n 1 --n-trials 1 --dataset"),
    "a dataset to show": recorded("this:1", command="data show"),
    "a folder of a module": recorded_by_minari("beside:Env-v0"),
    # -- models
    "an algorithm that is a list": model("ppo", "algorithm", value=["PPO"]),
    "a policy of a module": model("ppo", "policy", value="this:1"),
    "a policy that changes the program": model("ppo", "policy", value={"$class": f"{SWITCHING}:X"}),
    "learners of 10**18": hyper("ppo", "n_learners", MANY, "train -n 1 --eval-freq -1 -i"),
    "learners as a float": hyper("ppo", "n_learners", 1e18),
    "runners of numpy's": hyper("ppo", "n_runners", {"$scalar": ["<i8", [], "AAAAAAAAAAE="]}),
    "a period in a tuple": hyper("dqn", "train_freq", {"$tuple": [MANY, "step"]}),
    "critics within options": hyper("sac", "policy_kwargs", {"net_arch": [4], "n_critics": MANY}),
    "options of an optimizer": model("ppo", "optimizers", "policy", "groups", 0, "eps", value=None),
    "rates of decay": model("ppo", "optimizers", "policy", "groups", 0, "betas", value={"$tuple": [0.9]}),
    "options that are no numbers": model("ppo", "optimizers", "policy", "groups", 0, "eps", value={"$float": "nan"}),
    "a name that commands": model("ppo", "algorithm", value="\x1b[31mred"),
    "a peer's rollouts": model("sb3", "n_steps", value=MANY),
    "a peer's weights": part("policy.pth", saved_by_torch),
    "a peer's weights that are a pickle": part("policy.pth", pickled),
    "a peer's optimizer": part("policy.optimizer.pth", saved_by_torch),
    "statistics that are code": statistics,
    "a buffer that is code": replay,
    # -- checkpoints of RLlib's face
    "a checkpoint's environment": config(env="this:Env-v0"),
    "a checkpoint's runners": config(num_env_runners=10_000),
    "a checkpoint's environments": config(num_envs_per_env_runner=100_000),
    "a checkpoint's arguments": config(env_config={"render_mode": "../x"}),
    "a checkpoint's numbers": config(env_config={"sutton_barto_reward": 1e300}),
}
