"""Checkpoints: a folder with one file, ``model.zip``.

It is a file of :mod:`polyak.core.files.checkpoint`, which the plain algorithm loads too, with one member more:
``algorithm.json``, the settings and the counters of what stands around it. No part of it runs when it is read.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from polyak.core.files import checkpoint
from polyak.core.files.archive import DAMAGED, replacing
from polyak.core.files.parameters import saved_parameters, set_parameters
from polyak.core.files.serialise import decode, is_plain
from polyak.scale.config.base import AlgorithmConfig
from polyak.scale.filters import filter_around, moments_in

FILE, MEMBER, VERSION = "model.zip", "algorithm.json", 1


def save(algorithm: Any, path: Any) -> str:
    """See :meth:`Algorithm.save_to_path`."""
    folder, model, config = Path(path), algorithm.model, algorithm.config
    include = ["replay_buffer"] if getattr(config, "store_buffer_in_checkpoints", False) else []
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
    written = io.BytesIO()
    model.save(written, exclude=exclude, include=include)
    with zipfile.ZipFile(written, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(MEMBER, json.dumps(described, indent=1, allow_nan=False))
    with replacing(folder / FILE) as file:
        file.write(written.getbuffer())
    return str(folder)


def described_in(path: Any) -> dict[str, Any]:
    """The settings and counters of a checkpoint.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or none of these.
    """
    file = Path(path) / FILE
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r}: there is no {FILE} in it, which save_to_path() writes.")
    checkpoint.read(file)  # says what is wrong with a zip
    try:
        with zipfile.ZipFile(file) as archive:
            described = json.loads(archive.read(MEMBER))
        checkpoint.check_nesting(described)
        known = described["format"] == "polyak-scale" and described["format_version"] <= VERSION
        described["config"], described["iteration"], described["counters"], described["num_episodes_lifetime"]
    except (*DAMAGED, KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"path={str(path)!r} is no checkpoint, or damaged ({why}).") from error
    if not known:
        raise ValueError(f"path={str(path)!r} was written by a newer polyak. Upgrade polyak.")
    result: dict[str, Any] = described
    return result


def restore(algorithm: Any, path: Any, component: str | None = None) -> None:
    """See :meth:`Algorithm.restore_from_path`."""
    described, file = described_in(path), Path(path) / FILE
    if described["algorithm"] != algorithm.config.name:
        raise ValueError(
            f"path={str(path)!r} is a checkpoint of {described['algorithm']}, not of {algorithm.config.name}."
        )
    if component is not None:
        if component.rstrip("/").split("/")[-1] not in ("rl_module", "default_policy"):
            raise ValueError(f"component={component!r}: only 'rl_module' can be restored by itself.")
        saved = saved_parameters(checkpoint.read(file))
        policies = {name: value for name, value in saved.items() if not name.endswith("optimizer")}
        set_parameters(algorithm.model.learner, policies, exact_match=False)
        return
    plain, old = algorithm.plain, algorithm.model
    own = {**plain.kwargs, "policy_class": plain.policy}
    own.pop("kl_coef", None)  # which moves during training: the file's counts
    device = own.pop("device")
    counters = {name: described["counters"][name] for name in algorithm._counters}
    with warnings.catch_warnings():  # the filter takes the file's statistics below
        warnings.filterwarnings("ignore", "env has a VecNormalize")
        model = plain.algorithm.load(
            file, env=old.get_env(), device=device, custom_objects=own, resume=True, force_reset=True
        )
    known = filter_around(old.get_env())
    if known is not None and model._statistics is not None:
        known.load_moments(moments_in(model._statistics))
    if model.seed is not None:
        old.get_env().seed((model.seed + int(described["iteration"])) % 2**31)  # other episodes than the first ones
    algorithm._adopt(model, anew=False)
    algorithm._counters = counters
    algorithm.iteration = int(described["iteration"])
    algorithm._episodes.lifetime = int(described["num_episodes_lifetime"])


def config_of(path: Any, config: AlgorithmConfig | None, cls: Any) -> AlgorithmConfig:
    """The config to build an algorithm with; see :meth:`Algorithm.from_checkpoint`."""
    described = described_in(path)
    if config is not None:
        return config
    own = cls.config_class
    if not own.name:  # Algorithm.from_checkpoint(path)
        own = resolve_name("polyak.scale.trainables:config_class")(described["algorithm"])
    settings = described["config"]
    left_out = {name: value["$left_out"] for name, value in settings.items() if _was_left_out(value)}
    if left_out:
        raise ValueError(
            f"path={str(path)!r}: no file can hold the settings {left_out}. Build the config as it was and pass it: "
            "from_checkpoint(path, config=config)."
        )
    config = own.from_dict({name: decode(value) for name, value in settings.items()})
    return config


def _was_left_out(value: Any) -> bool:
    return isinstance(value, dict) and "$left_out" in value
