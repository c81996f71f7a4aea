"""Names, words and numbers that come with a file: what is allowed is a short list, and nothing else imports anything."""

import io
import json
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import PPO, SAC
from polyak.algorithms import REGISTRY, get
from polyak.data import Dataset
from polyak.hyperparameters.declaration import declared
from polyak.zoo.cli import main
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import read_yaml
from polyak.zoo.registry import find_env
from polyak.zoo.untrusted import USER, Author

OTHERS = Author.of_file(trust=False)

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
ALLOWED = [
    "MlpPolicy",
    "rgb_array",
    "4x4",
    "lin_3e-4",
    "auto_0.1",
    "auto",
    "ornstein-uhlenbeck",
    "a b",
]

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


@pytest.mark.parametrize("word", WORDS)
def test_words_that_are_not_plain_are_refused_everywhere(word: str) -> None:
    for value in ({"kind": word}, {"kind": [word]}, {word: 1}):
        with pytest.raises(ZooError, match=r"file\.yml: env_kwargs"):
            OTHERS.check_values(value, source="file.yml", key="env_kwargs")
    with pytest.raises(ZooError, match=r"x\.npz: env (names|is) |Unknown environment --env 'ALE/Nothing-v5'"):
        find_env(word, (), OTHERS, "x.npz")


@pytest.mark.parametrize("word", ALLOWED)
def test_plain_words_and_registered_ids_are_allowed(word: str) -> None:
    OTHERS.check_values({"kind": word, "id": "CartPole-v1", "device": "cuda:0"}, source="file.yml", key="env_kwargs")


def test_the_user_may_write_anything() -> None:
    USER.check_values({"kind": "this:1", "n": 10**12}, source="words", key="env_kwargs")


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_sizes_without_end_are_refused_before_anything_is_built(setting: str) -> None:
    began = time.process_time()
    with pytest.raises(ZooError, match=r"file\.yml"):
        OTHERS.check_values(read_yaml(setting, "file.yml"), source="file.yml", key="env_kwargs")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("env", ["beside.py:Env", "beside:CartPole-v1", "this:1", "logs/evil.py:Env"])
def test_a_dataset_runs_no_code(env: str, suffix: str, folder: Path) -> None:
    """Its ``env_id`` is data, not words that the user typed."""
    data = Dataset(
        np.zeros((8, 2), np.float32),
        np.linspace(-1, 1, 8, dtype=np.float32)[:, None],
        np.zeros(8),
        np.arange(8) % 4 == 3,
        env_id=env,
    )
    data.save(folder / f"x.{suffix}")
    with pytest.raises(SystemExit) as ended:
        main(["train", "--algo", "bc", "--dataset", f"x.{suffix}", "-f", "logs"])
    assert ended.value.code not in (0, None)
    assert "code of others ran" not in str(ended.value)
    assert not (folder / "logs").exists()


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


@pytest.mark.parametrize("value", [[], "x", {}, [1, "x"]])
def test_options_of_optimizers_are_of_their_kinds(value: Any) -> None:
    def change(info: dict[str, Any]) -> None:
        for part in info["optimizers"].values():
            part["groups"][0]["eps"] = value

    with pytest.raises(ValueError, match=r"actor optimizer of the file has eps=.*that of the model 1e-08"):
        SAC.load(altered(model(), change), device="cpu")


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


def counted(cls: Any) -> list[str]:
    """Hyper-parameters that count something."""
    return [name for name, kind in declared(cls).items() if "int" in str(kind) and name not in ("device", "seed")]


@pytest.mark.parametrize("name", sorted(REGISTRY))
@pytest.mark.slow
def test_no_count_of_a_file_takes_time_or_memory(name: str) -> None:
    """Each is refused, or taken as a number: nothing is built by it before there is something to build for."""
    resource = pytest.importorskip("resource")
    cls = get(name)
    options = cls.trial()
    made = cls(**options)
    kept = json.loads(zipfile.ZipFile(altered(made, lambda info: None)).read("polyak.json"))["hyperparameters"]
    for key in [key for key in counted(cls) if key in kept]:
        file = altered(made, lambda info, key=key: info["hyperparameters"].update({key: 10**18}))
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            cls.load(file, device="cpu")
        except ValueError as error:
            assert key in str(error) or "larger networks" in str(error) or "file" in str(error)
        assert time.process_time() - began < 5, key
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024, key
