"""RLlib's import lines, where Ray is installed and where it is not."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from polyak.compat.importer import parse
from polyak.compat.rllib_face.table import RLLIB
from polyak.compat.run import MARK
from tests.pairs import one_of_each
from tests.warm import python

NOTEBOOK = """
import ray
from ray.tune.registry import get_trainable_cls
from ray.tune.registry import register_env
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.algorithms.dqn.dqn_rainbow_catalog import DQNRainbowCatalog
from ray.rllib.algorithms.dqn.torch.dqn_rainbow_torch_rl_module import DQNRainbowTorchRLModule
from ray.rllib.algorithms.ppo.ppo_rl_module import PPORLModule
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.models.configs import CNNEncoderConfig, MLPEncoderConfig, RecurrentEncoderConfig
from ray.rllib.core.models.configs import ModelConfig, MLPHeadConfig
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.core.models.torch.encoder import TorchModel, Encoder
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.columns import Columns
from tests.warm import python
config = get_trainable_cls("PPO").get_default_config().environment("CartPole-v1")
print(type(config).__module__, PPOCatalog.__module__, ENCODER_OUT)
"""


def test_every_name_of_the_table_is_there() -> None:
    for path, text in RLLIB.items():
        module = import_module(f"polyak.compat.rllib.{path}".rstrip("."))
        for name, home, attribute in parse(text):
            assert getattr(module, name) is getattr(import_module(home), attribute), f"{path}.{name}"


def outcome(words: list[str], folder: Path, *packages: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    environment["HOME"] = environment["USERPROFILE"] = str(folder)  # below which results are written
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (root, *packages)))
    return python(words, folder, environment)


@pytest.mark.parametrize("installed", one_of_each([False, True], True))
def test_the_notebooks_import_lines(installed: bool, tmp_path: Path) -> None:
    """Unchanged under ``polyak run``. An installed Ray keeps its other names; its RLlib is not looked at."""
    script = NOTEBOOK
    packages = []
    if installed:
        package = tmp_path / "site" / "ray"
        for folder in (package, package / "rllib", package / "tune"):
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(
                "raise ImportError('heavy')" if folder.name == "rllib" else "HERE = 1\n"
            )
        packages.append(package.parent)
        script += "assert ray.HERE == 1\n"
    (tmp_path / "notebook.py").write_text(script)
    result = outcome(["-m", "polyak", "run", "notebook.py"], tmp_path, *packages)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("polyak run: polyak answers ray.rllib and ray.tune.") == 1
    assert result.stdout.split() == [
        "polyak.compat.rllib_face.config.ppo",
        "polyak.compat.rllib_face.models.catalog",
        "encoder_out",
    ]


def test_libraries_that_look_for_ray_find_what_is_installed(tmp_path: Path) -> None:
    """RLlib is answered for the program; a library that asks whether there is a Ray must not be told so."""
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("from importlib.util import find_spec\nFOUND = find_spec('ray')\n")
    looking = "import library; print(library.FOUND and library.FOUND.origin)\n"
    (tmp_path / "plain.py").write_text(looking)
    (tmp_path / "program.py").write_text(f"{looking}import ray.rllib\nprint(ray.rllib.__doc__)\n")
    plain = outcome(["plain.py"], tmp_path, library.parent).stdout
    result = outcome(["-m", "polyak", "run", "program.py"], tmp_path, library.parent)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{plain}ray.rllib, answered by polyak.\n"


def test_what_there_is_not_is_said_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="polyak does not answer this name"):
        import_module("polyak.compat.rllib.algorithms.dreams")


def test_a_program_that_starts_ray_runs_without_it(tmp_path: Path) -> None:
    script = """
import polyak.compat
polyak.compat.find_spec = lambda name: None  # as if there were no Ray
polyak.compat.install("ray")
import ray
ray.init(num_cpus=2, ignore_reinit_error=True)
print(ray.__version__, ray.is_initialized())
ray.shutdown()
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env
print(ray.is_initialized(), PPOConfig.__module__)
"""
    (tmp_path / "program.py").write_text(script)
    result = outcome(["program.py"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["2.60.0", "True", "False", "polyak.compat.rllib_face.config.ppo"]


CELLS = [
    "%matplotlib inline\nimport ray\nprint(ray.__version__)",
    """
from ray.tune.registry import get_trainable_cls, register_env
import gymnasium as gym

class Kind:
    algo, training_kwargs = "PPO", {"train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1}

register_env("mine", lambda config: gym.make("CartPole-v1"))
config = (
    get_trainable_cls(Kind.algo)
    .get_default_config()
    .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
    .environment("mine")
    .env_runners(num_env_runners=0)
    .evaluation(evaluation_interval=1, evaluation_duration=1)
    .rl_module(model_config={"fcnet_hiddens": [8]})
    .training(**Kind.training_kwargs)
)
""",
    'algo = config.build()\nresult = algo.train()\nprint(result["training_iteration"], algo.save_to_path("here"))',
    "algo.stop()\ntype(algo.get_module()).__name__",
]


def test_a_notebook_trains(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": source} for source in CELLS]
    (tmp_path / "nb.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    result = outcome(["-m", "polyak", "run", "--only", "ray", "nb.ipynb"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[1:] == ["1", "here", "'DefaultPPOTorchRLModule'"]
    assert (tmp_path / "here").is_dir()


CLONING = [
    "%matplotlib inline\nimport numpy as np, pyarrow as pa, pyarrow.parquet as pq",
    """
rng = np.random.default_rng(0)
seen = rng.uniform(-1, 1, (200, 4)).astype(np.float32)
rows = {"obs": seen.tolist(), "new_obs": seen.tolist(), "actions": (seen[:, 0] > 0).astype(int).tolist()}
rows |= {"rewards": [1.0] * 200, "terminateds": [True] * 200, "truncateds": [False] * 200}
rows["eps_id"] = list(map(str, range(200)))
pq.write_table(pa.table(rows), "steps.parquet")
""",
    """
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.algorithm import Algorithm

config = (
    BCConfig()
    .environment("CartPole-v1")
    .offline_data(input_=["steps.parquet"], dataset_num_iters_per_learner=1)
    .training(lr=1e-3, train_batch_size_per_learner=64)
    .rl_module(model_config={"fcnet_hiddens": [8]})
    .evaluation(evaluation_interval=1, evaluation_duration=1)
)
algo = config.build_algo()
result = algo.train()
print(result["training_iteration"], result["evaluation"]["env_runners"]["num_episodes"])
""",
    'path = algo.save_to_path("cloned")\nalgo.stop()\nagain = Algorithm.from_checkpoint(path)\nprint(again.iteration)',
    'print(again.train()["training_iteration"])\nagain.stop()',
]


@pytest.mark.slow
def test_a_notebook_clones_what_was_recorded(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    cells = [{"cell_type": "code", "source": source} for source in CLONING]
    (tmp_path / "nb.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    result = outcome(["-m", "polyak", "run", "--only", "ray", "nb.ipynb"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1", "1", "1", "2"]
