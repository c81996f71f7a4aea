"""The import names: every name of the table is there, and modules behave as imported ones do."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pytest

import polyak.compat
from polyak.compat.importer import parse
from polyak.compat.sb3_face.table import CONTRIB, SB3
from tests.warm import python


def test_every_name_of_the_table_is_there() -> None:
    for path, text in SB3.items():
        module = importlib.import_module(f"polyak.compat.sb3.{path}".rstrip("."))
        names = [name for name, _, _ in parse(text)]
        assert not [name for name in names if getattr(module, name) is None], path
        assert set(module.__all__) == {name for name in names if not name.startswith("_")}, path


def test_every_name_of_contrib_is_there() -> None:
    for path, text in CONTRIB.items():
        module = importlib.import_module(f"polyak.compat.contrib.{path}".rstrip("."))
        assert not [name for name, _, _ in parse(text) if not hasattr(module, name)], path


def test_classes_are_the_same_under_all_paths() -> None:
    from polyak.compat.sb3 import PPO
    from polyak.compat.sb3.common.policies import ActorCriticPolicy
    from polyak.compat.sb3.ppo import MlpPolicy
    from polyak.compat.sb3.ppo.ppo import PPO as by_module

    assert PPO is by_module
    assert MlpPolicy is ActorCriticPolicy


def test_names_are_reached_as_attributes_and_from_other_modules() -> None:
    import polyak.compat.sb3 as sb3
    from polyak.compat.sb3.common.callbacks import evaluate_policy  # where the other library uses it, too

    assert sb3.common.vec_env.DummyVecEnv is importlib.import_module("polyak.envs").DummyVecEnv
    assert callable(evaluate_policy)
    assert not hasattr(sb3, "DummyVecEnv")
    with pytest.raises(ImportError):
        importlib.import_module("polyak.compat.sb3.common.nothing")


def test_names_of_other_libraries_that_the_peers_modules_have() -> None:
    pytest.importorskip("rich")
    pytest.importorskip("psutil")
    import tqdm.rich

    import polyak.compat.sb3.common.callbacks as callbacks
    from polyak.compat.sb3 import common
    from polyak.compat.sb3.common import base_class, buffers, evaluation, logger, monitor, utils
    from polyak.compat.sb3.ppo.ppo import F, SelfPPO, np, spaces, th, warnings

    assert callbacks.tqdm is tqdm.rich.tqdm
    assert logger.tqdm is tqdm.tqdm
    assert (buffers.psutil.__name__, monitor.glob, utils.glob.__name__) == ("psutil", utils.glob.glob, "glob")
    assert [module.__name__ for module in (F, np, spaces, th, warnings)] == [
        *("torch.nn.functional", "numpy", "gymnasium.spaces", "torch", "warnings")
    ]
    assert isinstance(SelfPPO, TypeVar)
    assert base_class.utils is common.utils
    assert evaluation.type_aliases is common.type_aliases
    assert utils.sb3.PPO
    with mock.patch.dict("sys.modules", {"psutil": None}):
        assert buffers.psutil is None, "as the peer has it without that library"
    assert not hasattr(buffers, "nothing")


def test_a_module_is_filled_anew_when_it_is_imported_anew() -> None:
    name = "polyak.compat.sb3.common.results_plotter"
    importlib.import_module(name)
    with mock.patch.dict("sys.modules", {"pandas": None}):
        del sys.modules[name]
        with pytest.raises(ImportError, match="pandas is required for plotting"):
            importlib.import_module(name)
    assert importlib.import_module(name).ts2xy


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return python(["-c", code], check=True).stdout


def test_install_answers_the_two_names_and_may_be_called_twice() -> None:
    out = run(
        "import polyak.compat as c; c.install(); c.install()\n"
        "import stable_baselines3 as sb3, sb3_contrib, sys, polyak\n"
        "from stable_baselines3.common.vec_env import SubprocVecEnv\n"
        "from stable_baselines3 import *\n"
        "print(sb3.__version__, issubclass(PPO, polyak.PPO), SubprocVecEnv.__module__)"
    )
    assert out.split() == ["2.9.2", "True", "polyak.envs.vec.subproc"]


def test_install_refuses_to_mix_with_a_library_that_is_already_imported() -> None:
    out = run(
        "import sys, types, importlib.machinery\n"
        "real = types.ModuleType('stable_baselines3'); real.__spec__ = importlib.machinery.ModuleSpec('s', None)\n"
        "sys.modules['stable_baselines3'] = real\n"
        "import polyak.compat\n"
        "try: polyak.compat.install()\n"
        "except ImportError as error: print(error)"
    )
    assert "stable_baselines3 is already imported" in out
    assert "before anything imports it" in out


def test_importing_the_package_does_not_install() -> None:
    code = "import polyak.compat, sys; print(any('stable' in getattr(f, 'root', '') for f in sys.meta_path))"
    assert run(code).strip() == "False"
    assert polyak.compat.install.__doc__


def test_processes_that_a_program_starts_answer_the_names_too(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(
        "from importlib.util import find_spec\n"  # which imports no torch
        "ORIGINS = [find_spec(name).origin for name in ('stable_baselines3', 'sb3_contrib')]\n"
        "def ask(): print(ORIGINS)\n"
    )
    (tmp_path / "program.py").write_text(
        "import multiprocessing, subprocess, sys\n"
        "if __name__ == '__main__':\n"
        "    import polyak.compat\n"
        "    polyak.compat.install('stable_baselines3')\n"
        "    polyak.compat.install('sb3_contrib')\n"
        "    import asks\n"
        "    process = multiprocessing.get_context('spawn').Process(target=asks.ask)\n"
        "    process.start(), process.join()\n"
        "    subprocess.run([sys.executable, '-c', 'import asks; asks.ask()'], check=True)\n"
    )
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    answered = "['polyak (stable_baselines3)', 'polyak (sb3_contrib)']\n"
    assert (done.stdout, done.stderr) == (2 * answered, "")


# -- an installed sb3-contrib ------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages in which an sb3-contrib and a Stable-Baselines3 are installed."""
    files = {
        "sb3_contrib/__init__.py": "from sb3_contrib.new.new import New\nprint('run')\n__version__ = '0'\nOWN = 3",
        "sb3_contrib/common/__init__.py": "",
        "sb3_contrib/common/utils.py": "def theirs(): return 'theirs'",
        "sb3_contrib/new/__init__.py": "",
        "sb3_contrib/new/new.py": "from stable_baselines3.common.base_class import BaseAlgorithm\n"
        "from sb3_contrib.common.utils import theirs\nclass New(BaseAlgorithm): said = theirs()",
        "stable_baselines3/__init__.py": "raise SystemExit('the real one was imported')",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run_beside(site: Path, code: str) -> str:
    """What a fresh interpreter prints that finds the packages of ``site``."""
    return run(f"import sys; sys.path.insert(0, {str(site)!r})\nimport polyak.compat as c\n{code}")


def test_what_polyak_lacks_of_contrib_comes_from_the_installed_one(site: Path) -> None:
    out = run_beside(
        site,
        "c.install()\nimport sb3_contrib, pickle\nprint(sb3_contrib.__version__)\nfrom sb3_contrib import New, OWN\n"
        "from sb3_contrib.common.utils import theirs\nfrom sb3_contrib.new import new\n"
        "print(New.said, OWN, new.New is New, pickle.loads(pickle.dumps(theirs)) is theirs)\n"
        "from stable_baselines3.common.base_class import BaseAlgorithm\nprint(issubclass(New, BaseAlgorithm))\n"
        "names = {}; exec('from sb3_contrib import *', names); print('New' in names)\n"
        "try: sb3_contrib.nothing\nexcept AttributeError as error: print(error)",
    )
    first, *rest = out.splitlines()
    assert first == "2.9.2", "what polyak has, it answers; the installed one has not even been run"
    assert rest[:4] == ["run", "theirs 3 True True", "True", "True"]
    assert "no attribute 'nothing'" in rest[4]


def test_only_the_packages_named_are_answered(site: Path) -> None:
    out = run_beside(
        site, "c.install(only=['stable_baselines3'])\nimport sb3_contrib as s\nprint(s.__version__, s.__file__)"
    )
    assert out.split() == ["run", "0", str(site / "sb3_contrib" / "__init__.py")]
    out = run_beside(
        site,
        "c.install(only='sb3_contrib')\nimport sb3_contrib\nprint(sb3_contrib.__version__)\n"
        "try: import stable_baselines3\nexcept SystemExit as end: print(end)",
    )
    assert out == "2.9.2\nthe real one was imported\n"
    with pytest.raises(ValueError, match=r"only=\['sb3'\] cannot be answered.*stable_baselines3"):
        polyak.compat.install(only=["sb3"])


def test_without_an_installed_contrib_a_missing_name_says_so() -> None:
    out = run(
        "import polyak.compat as c; c.install()\n"
        "try: import sb3_contrib.no_such_module\nexcept ModuleNotFoundError as error: print(error)"
    )
    assert "polyak does not answer this name, and no sb3_contrib is installed that has it" in out
