"""Names, words and numbers that come with a file: what is allowed is a short list, and all else is refused at once."""

import io
import json
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from polyak import PPO, SAC
from polyak.algorithms import REGISTRY, get
from polyak.checkpoint.saved import Saved, built, read
from polyak.envs.reading.untrusted import UntrustedError
from polyak.hyperparameters.declaration import declared
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import read_yaml
from polyak.zoo.registry import find_env
from polyak.zoo.settings import interpret
from polyak.zoo.untrusted import USER, ZooAuthor, named_packages

OTHERS = ZooAuthor.of_file(trust=False)

WORDS = [
    *("this:1", "this.1", "this:Env-v0 ", "this: Env-v0", " this:Env-v0", "this:", "this..1", "a.b", "os.system"),
    *("beside:X-v0", "beside.X", "beside.py", "beside.py:X", "beside:CartPole-v1", "beside:\tX-v0", "beside\n:X-v0"),
    *("gymnasium:CartPole-v1", "antigravity:CartPole-v1", "this\u2024one", "this\uff1a1", "./beside", "beside/X-v0"),
    *(
        "ALE/Nothing-v5",
        "nn.ReLU",
        "torch.nn:ReLU",
        "builtins.exec",
        "__import__('os')",
        "{this}",
        "a;b",
        "a|b",
        "$HOME",
    ),
    *("~", "..", "C:\\x", "//host/share", "file:///etc/passwd", "http://x", "x@y", "%s", "lin_0.5.py", "lin_os.system"),
    *("cuda:os", "1.2.3", "auto_0.1:x", "Pendulum-v1:x", "\x1b[31mred", "x" * 2_000),
]
ALLOWED = ["MlpPolicy", "rgb_array", "4x4", "lin_3e-4", "auto_0.1", "auto", "ornstein-uhlenbeck", "a b"]

SETTINGS = {
    "a frequency": "{simulation_frequency: 1000000000000}",
    "rows that are one row": "{desc: &d [" + ", ".join(["&a " + "S" * 900] + ["*a"] * 999) + "]}",
    "lists in lists": "{x: [" + ", ".join(["[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"] * 999) + "]}",
    "a shape": "{shape: [1000, 1000, 1000]}",
    "a length of a chain": "{length: 1000000000}",
    "a size of a map": "{size: 1000000}",
    "widths": "{screen_width: 1000000}",
    "a number below": "{width: -1000000000}",
    "a deep number": "{a: {b: {c: [{d: 5000}]}}}",
    "a name that is no word": "{3.5: 1, true: 2}",
    "a path to write": "{log_dir: here}",
    "many names": "{" + ", ".join(f"a{i}: 1" for i in range(1_500)) + "}",
    "a long name": "{" + "a" * 2_000 + ": 1}",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with modules of others, which must not be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text("raise SystemExit('code of others ran')\n")
    before = set(sys.modules)
    yield tmp_path
    assert not {"this", "antigravity", "beside"} & (set(sys.modules) - before)


def test_words_that_are_not_plain_are_refused_everywhere() -> None:
    for word in WORDS:
        for value in ({"kind": word}, {"kind": [word]}, {word: 1}):
            with pytest.raises(ZooError, match=r"file\.yml: env_kwargs"):
                OTHERS.check_values(value, source="file.yml", key="env_kwargs")
        with pytest.raises(ZooError, match=r"x\.npz: env (names|is) |Unknown environment --env 'ALE/Nothing-v5'"):
            find_env(word, (), OTHERS, "x.npz")


def test_plain_words_and_registered_ids_are_allowed() -> None:
    for word in ALLOWED:
        value = {"kind": word, "id": "CartPole-v1", "device": "cuda:0"}
        OTHERS.check_values(value, source="file.yml", key="env_kwargs")


def test_the_user_may_write_anything() -> None:
    USER.check_values({"kind": "this:1", "n": 10**12}, source="words", key="env_kwargs")


def test_sizes_without_end_are_refused_before_anything_is_built() -> None:
    for name, setting in SETTINGS.items():
        began = time.process_time()
        with pytest.raises(ZooError, match=r"file\.yml"):
            OTHERS.check_values(read_yaml(setting, "file.yml"), source="file.yml", key="env_kwargs")
        assert time.process_time() - began < 1, name


def test_a_package_that_is_not_installed_is_not_taken_from_the_current_folder(folder: Path) -> None:
    """That is searched once the user names a module in it."""
    sys.path.remove(str(folder))
    for package in ("minigrid", "panda_gym"):
        (folder / f"{package}.py").write_text("raise SystemExit('code of others ran')\n")
        with pytest.raises(ZooError, match=f"gym_packages names '{package}', code"):
            named_packages({"gym_packages": [package]}, OTHERS, "args.yml")
    with pytest.raises(ZooError, match="env is 'MiniGrid-Empty-5x5-v0', which is no registered environment"):
        find_env("MiniGrid-Empty-5x5-v0", (), OTHERS, "x.npz")


# -- model files -------------------------------------------------------------------------------------------------------


def altered(model: Any, change: Any) -> io.BytesIO:
    """A model's file with another description."""
    file, made = io.BytesIO(), io.BytesIO()
    model.save(file)
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == "polyak.json":
                info = json.loads(content)
                change(info)
                content = json.dumps(info).encode()
            after.writestr(name, content)
    made.seek(0)
    return made


def model(cls: Any = SAC) -> Any:
    return cls("MlpPolicy", "Pendulum-v1", device="cpu", policy_kwargs={"net_arch": [8]})


def test_an_algorithm_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm is 'os.system', which is no name of a class"):
        PPO.load(altered(model(PPO), lambda info: info.update(algorithm="os.system")), device="cpu")


def test_options_of_optimizers_are_of_their_kinds() -> None:
    made = model()
    for value in ([], "x", {}, [1, "x"], None):

        def change(info: dict[str, Any], value: Any = value) -> None:
            for part in info["optimizers"].values():
                part["groups"][0]["eps"] = value

        with pytest.raises(ValueError, match=r"path=.*optimizer of the file has eps=.*that of the model 1e-08"):
            SAC.load(altered(made, change), device="cpu")


def test_weights_that_are_not_finite_are_named() -> None:
    lost = model()
    with torch.no_grad():
        lost.policy.actor.mu.weight[0] = torch.nan
    file = altered(lost, lambda info: None)
    with pytest.warns(UserWarning, match=r"NaN or infinity in policy\.actor\.mu\.weight"):
        SAC.load(file, device="cpu")


def test_a_hostile_part_of_a_peers_file_is_refused_in_our_words(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("\x1b[31mcode of others ran",)

    part = io.BytesIO()
    torch.save({"x": Evil()}, part)
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", part.getvalue())
    with pytest.raises(ValueError, match=r"names [\w.]*print, which is no tensor") as caught:
        PPO.load(tmp_path / "m.zip", device="cpu")
    assert "weights_only" not in str(caught.value)
    assert str(caught.value).isprintable()


SAVED = Path(__file__).parents[1] / "checkpoint" / "saved_models"


def counts(cls: Any) -> list[str]:
    """Hyper-parameters that may be whole numbers."""

    def whole(kind: Any) -> bool:
        return kind is int or any(whole(part) for part in get_args(kind) if not isinstance(part, str))

    return [name for name, kind in declared(cls).items() if whole(kind) and name not in ("device", "env")]


def test_no_count_of_a_file_is_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any algorithm: models and settings are refused before anything is built."""
    n_refused = 0
    for name in REGISTRY:
        cls = get(name)
        monkeypatch.setattr(cls, "_unbuilt", lambda *_: pytest.fail("a model was built"))
        file = SAVED / f"{name}.zip"
        saved = read(file) if file.exists() else Saved({"algorithm": cls.__name__, "bases": [], "hyperparameters": {}})
        stored = saved.info["hyperparameters"]
        for key in counts(cls):
            pair = {"$tuple": [10**18, "step"]}
            for value in (
                10**18,
                1e18,
                {"$scalar": ["<i8", [], "AAAAAAAAAAE="]},
                *([pair] if key == "train_freq" else ()),
            ):
                saved.info["hyperparameters"] = {**stored, key: value}
                began = time.process_time()
                with pytest.raises(ValueError, match=rf"model\.zip.* {key}=.* is a number beyond"):
                    built(cls, saved, "model.zip")
                assert time.process_time() - began < 1, (name, key)
                n_refused += 1
            with pytest.raises(ZooError, match=rf"file\.yml: {key}=.* is a number beyond"):
                interpret(cls, name, {key: 10**18}, "file.yml")
    assert n_refused > 1_500


def test_what_is_given_to_load_or_trusted_may_be_larger() -> None:
    file = altered(model(PPO), lambda info: info["hyperparameters"].update(n_epochs=20_000))
    with pytest.raises(UntrustedError, match="n_epochs=20000 is a number beyond 10,000"):
        PPO.load(file, device="cpu")
    for how in ({"n_epochs": 20_000}, {"trust": True}):
        file.seek(0)
        assert PPO.load(file, device="cpu", **how).n_epochs == 20_000
