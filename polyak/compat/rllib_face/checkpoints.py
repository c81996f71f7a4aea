"""Checkpoints: a folder with one file, ``model.zip``, and beside it the module alone, for programs that only act.

The file is a file of :mod:`polyak.checkpoint.saved`, which the plain algorithm loads too, with one member more:
``algorithm.json``, the settings and counters of RLlib's algorithm. Reading it runs no code.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.building import no_larger_than
from polyak.checkpoint.damage import damage_named
from polyak.checkpoint.parameters import saved_parameters, set_parameters
from polyak.checkpoint.saved import Saved
from polyak.checkpoint.serialise import Untrusted, decode, encode, is_plain
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.connectors.learning import load_state_of_all, state_of_all
from polyak.compat.rllib_face.environments import registered
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.groups import beside
from polyak.distributed.statistics import moments_in, take_moments
from polyak.envs.reading import plain_json
from polyak.envs.reading.untrusted import Author
from polyak.hyperparameters.declaration import require
from polyak.writing import replacing

FILE, MEMBER, VERSION = "model.zip", "algorithm.json", 1
MODULES = Path("learner_group") / "learner" / "rl_module"
"""The folder of modules in that of a checkpoint, as RLlib has it."""
ABOUT = "rllib_checkpoint.json"
"""The file by which RLlib's programs recognise a checkpoint folder."""
_BESIDE = "beside."
"""Tensors of modules that only the learner has are called so in the file."""


class Checkpoint(NamedTuple):
    """A folder that an algorithm was saved to."""

    path: str

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Yields the folder."""
        yield self.path

    def to_directory(self, path: Any = None) -> str:
        """Returns the folder, or a copy of it at ``path``."""
        return self.path if path is None else str(shutil.copytree(self.path, path, dirs_exist_ok=True))


class SavedTraining(NamedTuple):
    """The result of :meth:`Algorithm.save`: a checkpoint, and the latest result of ``train()``."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]


def folder_of(given: Any) -> str:
    """Returns the folder of a path, a :class:`Checkpoint` (also Ray's), or a result of :meth:`Algorithm.save`."""
    given = getattr(given, "checkpoint", given)
    return str(getattr(given, "path", given))


def save(algorithm: Any, path: Any) -> str:
    """See :meth:`Algorithm.save_to_path`."""
    folder, model, config = Path(path), algorithm.model, algorithm.config
    replays = getattr(config, "store_buffer_in_checkpoints", False) or not config.collects  # then also the next draws
    include = ["replay_buffer"] if replays else []
    values = model.hyperparameters()
    exclude = [name for name in ("policy_kwargs", "learning_rate") if not is_plain(values[name])]
    exclude += [name for name, value in values.items() if name not in exclude and not is_plain(value)]
    described = {
        "format": "polyak-scale",
        "format_version": VERSION,
        "algorithm": config.name,
        "config": config.changed(),
        "iteration": algorithm.iteration,
        "counters": algorithm._counters,
        "num_episodes_lifetime": algorithm._episodes.lifetime,
    }
    if pieces := state_of_all(model):
        fix = "a file holds numbers, texts, arrays, and lists and dicts of them. Return those."
        require(is_plain(pieces), "get_state() of a connector", sorted(pieces), fix)
        described["connectors"] = encode(pieces)
    written = io.BytesIO()
    model.save(written, exclude=exclude, include=include)
    with zipfile.ZipFile(written, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(MEMBER, json.dumps(described, indent=1, allow_nan=False))
    with replacing(folder / FILE) as file:
        file.write(written.getbuffer())
    about = {"type": "Algorithm", "checkpoint_version": "2.1", "format": described["format"], "state_file": FILE}
    with replacing(folder / ABOUT) as file:
        file.write(json.dumps({**about, "module_ids": [DEFAULT_MODULE_ID, *beside(model.learner)]}).encode())
    if hasattr(model.policy, "rl_module"):
        for name, module in {DEFAULT_MODULE_ID: model.policy.rl_module, **beside(model.learner)}.items():
            _save_module(module, folder / MODULES / name)
    return str(folder)


def _save_module(module: Any, folder: Path) -> None:
    """Write a module for ``RLModule.from_checkpoint``, unless no file can name its class: it is in ``model.zip``
    too."""
    try:
        module.save_to_path(folder)
    except ValueError:
        shutil.rmtree(folder, ignore_errors=True)


def described_in(path: Any) -> dict[str, Any]:
    """Returns the settings and counters of a checkpoint.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it is damaged, or no checkpoint.
    """
    return _contents(path)[0]


def _contents(path: Any) -> tuple[dict[str, Any], Saved]:
    """Returns the settings and counters of a checkpoint, and its model's file."""
    file = Path(path) / FILE
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r}: there is no {FILE} in it, which save_to_path() writes.")
    saved = checkpoint.read(file)  # raises the error about a zip
    with damage_named(path), zipfile.ZipFile(file) as archive:
        if MEMBER not in archive.namelist():
            raise ValueError(f"it is no checkpoint: its {FILE} holds no {MEMBER}, which save_to_path() writes.")
        described = plain_json.parse_object(archive.read(MEMBER), MEMBER)
        if described["format"] != "polyak-scale" or described["format_version"] > VERSION:
            raise ValueError("it was written by a newer polyak. Upgrade polyak.")
        for name in ("iteration", "num_episodes_lifetime"):
            checkpoint.check_counter(name, described[name])
        for name, value in described["counters"].items():
            checkpoint.check_counter(name, value)
        if not isinstance(described["config"], dict) or not isinstance(described["algorithm"], str):
            raise ValueError("it holds no config.")
    return described, saved


def restore(algorithm: Any, path: Any, component: str | None = None) -> None:
    """See :meth:`Algorithm.restore_from_path`."""
    with damage_named(path):
        _restore(algorithm, path, component)


def _restore(algorithm: Any, path: Any, component: str | None) -> None:
    described, file = described_in(path), Path(path) / FILE
    if described["algorithm"] != algorithm.config.name:
        raise ValueError(
            f"path={str(path)!r} is a checkpoint of {described['algorithm']}, not of {algorithm.config.name}."
        )
    if component is not None and component.rstrip("/").split("/")[-1] not in ("rl_module", "default_policy"):
        _restore_part(algorithm, path, component.rstrip("/"))
        return
    if component is not None:
        saved = saved_parameters(checkpoint.read(file))
        policies = {name: value for name, value in saved.items() if not name.endswith("optimizer")}
        further = {name: policies.pop(name) for name in list(policies) if name.startswith(_BESIDE)}
        set_parameters(algorithm.model.learner, policies, exact_match=False)
        for module_id, module in beside(algorithm.model.learner).items():
            above = f"{_BESIDE}{module_id}."
            module.set_state({name.removeprefix(above): one for name, one in further.items() if name.startswith(above)})
        return
    plain, old = algorithm.plain, algorithm.model
    own = {**plain.kwargs, "policy_class": plain.policy}
    own.pop("kl_coef", None)  # which moves during training: the file's counts
    device = own.pop("device")
    counters = {name: described["counters"].get(name, 0) for name in algorithm._counters}
    with warnings.catch_warnings():  # the filter takes the file's statistics below
        warnings.filterwarnings("ignore", "env has a VecNormalize")
        model = plain.algorithm.load(
            file, env=algorithm._source, device=device, custom_objects=own, resume=True, force_reset=True
        )
    known = filter_around(old.get_env())
    if known is not None and (loaded := model.normalisation.loaded) is not None:
        take_moments(known, moments_in(loaded))
    load_state_of_all(model, decode(described.get("connectors", {})))
    if model.seed is not None and old.get_env() is not None:
        old.get_env().seed((model.seed + int(described["iteration"])) % 2**31)  # other episodes than the first ones
    algorithm._continue_with(model, restart=False)
    algorithm._counters = counters
    algorithm.iteration = int(described["iteration"])
    algorithm._episodes.lifetime = int(described["num_episodes_lifetime"])


def _restore_part(algorithm: Any, path: Any, component: str) -> None:
    """Take over a component of an algorithm that is built of the checkpoint for as long as that takes."""
    with type(algorithm)(algorithm.config.copy(copy_frozen=False)) as other:
        restore(other, path)
        state = other.get_state(components=component)
    above = component.split("/")[0]
    algorithm.set_state({above: state[above]})


def built(path: Any, config: AlgorithmConfig | None, cls: Any, trust: bool = False) -> Any:
    """Returns an algorithm that a checkpoint can be restored into; see :meth:`Algorithm.from_checkpoint`."""
    described, saved = _contents(path)
    if config is not None:
        return config.build_algo()
    with damage_named(path):
        config = _described_config(path, described, cls, trust)
        with no_larger_than(saved.networks.values(), config.model_config):
            return config.build_algo()


class _Author(Author):
    """The author of a config in a file."""

    way_out = (
        "Build the config as it was, and pass it: from_checkpoint(path, config=config). Or pass trust=True, if you "
        "trust the file."
    )


def _described_config(path: Any, described: dict[str, Any], cls: Any, trust: bool) -> AlgorithmConfig:
    own = cls.config_class
    if not own.name:  # Algorithm.from_checkpoint(path)
        own = resolve_name("polyak.compat.rllib_face.trainables:config_class")(described["algorithm"])
    settings = described["config"]
    left_out = {name: value["$left_out"] for name, value in settings.items() if _was_left_out(value)}
    if left_out:
        raise ValueError(
            f"path={str(path)!r}: no file can hold the settings {left_out}. Build the config as it was and pass it: "
            "from_checkpoint(path, config=config)."
        )
    values = {name: decode(value, trust) for name, value in settings.items()}
    if unread := {name: value for name, value in values.items() if _holds_untrusted(value)}:
        raise ValueError(f"path={str(path)!r}: the file holds code in its settings {unread}. {_Author.way_out}")
    if isinstance(spec := values.get("rl_module_spec"), dict):
        values["rl_module_spec"] = resolve_name("polyak.compat.rllib_face.models.rl_module:RLModuleSpec")(**spec)
    env, author = values.get("env"), _Author(is_trusted=trust)
    if isinstance(env, str) and env not in registered():
        module, _, name = env.rpartition(":")
        author.check_environment(name if module in sys.modules else env, source="the config")
    author.check_values(values.get("env_config"), source="the config", key="env_config")
    for name in values.keys() - {"env_config"}:
        author.check_values(values[name], source="the config", key=name, kind="hyperparameter", sizes=True)
    config: AlgorithmConfig = own.from_dict(values)
    return config


def _holds_untrusted(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return any(map(_holds_untrusted, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Untrusted)


def _was_left_out(value: Any) -> bool:
    return isinstance(value, dict) and "$left_out" in value
