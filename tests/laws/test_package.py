"""What is published: wheel and sdist hold what they must, the wheel works where nothing else of the project is, and the
files about the project agree with each other."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import polyak
from benchmarks.wheel_to_film import EXPORTED, FILM, MODEL, environment, wheel_to_film
from benchmarks.wheel_to_film import run as run_within
from tests.laws.floors import PACKAGE

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = PACKAGE.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text("utf-8")


def names(requirements: list[str]) -> set[str]:
    """Distributions that are required, extras of this package followed."""
    found = set()
    for requirement in requirements:
        if match := re.match(r"polyak\[([\w,]+)\]", requirement):
            found |= names([item for extra in match[1].split(",") for item in EXTRAS[extra]])
        else:
            found.add(re.split(r"[\[<>=; ]", requirement)[0].lower())
    return found


def test_all_has_every_extra_of_users_but_those_named() -> None:
    [about] = re.findall(r"^# (All of it but .*)\nall = ", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    left_out = {extra for extra in EXTRAS if re.search(rf"\b{extra}\b", about)}
    assert left_out == {"envpool", "highway", "minigrid", "panda"}
    of_users = EXTRAS.keys() - left_out - {"all", "tests", "lint", "docs", "browser"}
    everything = names([item for extra in of_users for item in EXTRAS[extra]])
    assert names(EXTRAS["all"]) == everything


def test_versions_agree() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == polyak.__version__
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    pinned = {item for hook in hooks for item in hook.get("additional_dependencies", ())}
    assert pinned == {f"ruff=={pins['ruff']}"}


def test_the_workflow_tests_the_pythons_that_the_package_names() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    named = [item.rpartition(" ")[2] for item in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", item)]
    assert matrix["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    verbs = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    used = {verb for step in steps if step.startswith("make ") for verb in step.split()[1:]}
    assert {"lint", "type", "docs"} <= used <= verbs


def public_modules() -> list[str]:
    """Those of the table in the stability promise."""
    page = (ROOT / "docs" / "stability.md").read_text("utf-8")
    return [
        name
        for line in page.splitlines()
        if line.startswith("| `polyak")
        for name in re.findall(r"`(polyak[\w.]*)`", line.split("|")[1])
    ]


@pytest.mark.parametrize("name", public_modules())
def test_what_is_promised_is_there(name: str) -> None:
    module = __import__(name, fromlist=["__all__"])
    assert module.__all__
    assert module.__doc__
    assert all(hasattr(module, public) for public in module.__all__)


# -- built files ------------------------------------------------------------------------------------------------------


def sources() -> set[str]:
    """Files of the package, as names within an archive."""
    return {
        str(path.relative_to(ROOT).as_posix())
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so")
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, made by the backend that ``pyproject.toml`` names."""
    folder = tmp_path_factory.mktemp("dist")
    backend = folder / "backend"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(backend), "hatchling"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("hatchling is not to be had: no network?")
    code = f"import hatchling.build as b; b.build_wheel({str(folder)!r}); b.build_sdist({str(folder)!r})"
    environment = os.environ | {"PYTHONPATH": str(backend)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert wheel.name == f"polyak-{polyak.__version__}-py3-none-any.whl"
    found = set(zipfile.ZipFile(wheel).namelist())
    about = f"polyak-{polyak.__version__}.dist-info"
    expected = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert found == sources() | {f"{about}/{name}" for name in expected}


@pytest.mark.slow
def test_the_sdist_holds_what_builds_the_wheel(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        found = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    expected = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "pyproject.toml"}
    assert found - {".gitignore"} == sources() | expected | {"PKG-INFO"}


@pytest.mark.slow
def test_the_wheel_runs_readme_and_a_tutorial_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """Dependencies are those of this interpreter, put behind what the environment has itself."""
    [wheel] = built.glob("*.whl")
    place = tmp_path / "environment"
    scripts = environment(wheel, place)
    python = scripts / "python"

    def run(*words: str) -> str:
        return run_within(list(words), tmp_path)

    assert Path(run(str(python), "-c", "import polyak; print(polyak.__file__)").strip()).is_relative_to(place.resolve())
    program = tmp_path / "program.py"
    program.write_text(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0], encoding="utf-8")
    run(str(python), str(program))
    assert list(tmp_path.glob("*.zip")), "README's first program saves a model"
    assert polyak.__version__ in run(str(scripts / "polyak"), "--version")
    assert "PPO" in run(str(scripts / "polyak"), "list")
    assert "torch" in run(str(scripts / "polyak"), "doctor")
    tutorial = (ROOT / "docs/tutorials/normalization.md").read_text("utf-8")
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)), encoding="utf-8")
    run(str(python), str(program))


@pytest.mark.slow
def test_from_the_wheel_to_a_film(built: Path, tmp_path: Path) -> None:
    """How long it takes is `python benchmarks/wheel_to_film.py`'s matter."""
    [wheel] = built.glob("*.whl")
    out = tmp_path / "out"
    assert wheel_to_film(wheel, tmp_path / "environment", out).keys() == {
        "install",
        "train and film",
        "export",
        "compare",
    }
    assert all((out / name).stat().st_size > 1_000 for name in (MODEL, FILM, EXPORTED))


# -- other ways to install --------------------------------------------------------------------------------------------


def test_the_conda_recipe_is_that_of_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "recipe" / "meta.yaml").read_text("utf-8"))
    assert recipe["package"] == {"name": PROJECT["name"], "version": polyak.__version__}
    wanted = [
        re.sub(r"^([\w-]+)(?=[<>=])", r"\1 ", item.replace("torch", "pytorch")) for item in PROJECT["dependencies"]
    ]
    assert recipe["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *wanted]
    [backend] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert backend.replace(">", " >", 1) in recipe["requirements"]["host"]
    assert recipe["build"]["entry_points"] == [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    about = recipe["about"]
    assert (about["summary"], about["license"]) == (PROJECT["description"], PROJECT["license"])
    for name in recipe["test"]["imports"]:
        importlib.import_module(name)
    exec(shlex.split(recipe["test"]["commands"][0])[2], {})


def test_the_container_holds_what_it_copies_and_installs() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()]
    kept = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    assert set(copied) == kept
    assert all((ROOT / name).exists() for name in copied)
    [version] = re.findall(r"^FROM python:([\d.]+)-slim$", text, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    [extras] = re.findall(r"^ARG EXTRAS=(.+)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= EXTRAS.keys()
    assert re.search("^torch==", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
