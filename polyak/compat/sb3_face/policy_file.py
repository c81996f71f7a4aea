"""A policy by itself as a file: constructor arguments (JSON) and weights (safetensors). Reading it runs no code.

The file is also the result of ``torch.save`` for ``{"state_dict": ..., "data": ...}``, with these two beside the
pickle. A program that calls ``torch.load(path, weights_only=False)`` gets the content of Stable-Baselines3's files, and
runs the pickle.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import cloudpickle
import safetensors.torch
import torch
from torch import Tensor, nn

from polyak.archive import DAMAGED, check_members, name_of, open_zip, opened
from polyak.checkpoint.arrays import read_arrays, warn_not_finite
from polyak.checkpoint.serialise import decode, encode, holds_untrusted
from polyak.envs.reading import plain_json
from polyak.nn.networks.encoders import CombinedExtractor, FlattenExtractor, NatureCNN, make_extractor
from polyak.schedules import ConstantSchedule


def save(path: Any, weights: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> None:
    """Write a policy.

    Args:
        path: a path or a file opened for writing.
        weights: its state dict.
        parameters: arguments of its constructor. The learning-rate schedule is left out: it belongs to the algorithm.
    """
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in weights.items()}
    buffer = io.BytesIO()
    torch.save({"state_dict": tensors, "data": dict(parameters)}, buffer, pickle_module=cloudpickle)
    arguments = dict(parameters)
    if "lr_schedule" in arguments:
        arguments["lr_schedule"] = ConstantSchedule(0.0)
    if "features_extractor" in arguments:
        arguments["features_extractor"] = describe(arguments["features_extractor"])
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        folder = archive.namelist()[0].partition("/")[0]  # torch requires a single one
        archive.writestr(f"{folder}/policy.json", json.dumps(encode(arguments)))
        archive.writestr(f"{folder}/weights.safetensors", safetensors.torch.save(tensors))
    with opened(path, "wb", suffix="") as file:
        file.write(buffer.getvalue())


def describe(extractor: nn.Module) -> dict[str, Any]:
    """Returns the class and arguments that rebuild the features extractor of a network.

    Raises:
        TypeError: a class with unknown arguments.
    """
    if isinstance(extractor, NatureCNN):
        return {"class": type(extractor), "kwargs": {"features_dim": extractor.features_dim, **_scale_of(extractor)}}
    if isinstance(extractor, CombinedExtractor):
        images = [part for part in extractor.extractors.values() if isinstance(part, NatureCNN)]
        kwargs = {"cnn_output_dim": images[0].features_dim, **_scale_of(images[0])} if images else {}
        return {"class": type(extractor), "kwargs": kwargs}
    if isinstance(extractor, FlattenExtractor):
        return {"class": type(extractor), "kwargs": {}}
    raise TypeError(
        f"a network with a features extractor of class {type(extractor).__name__} cannot be saved by itself: save its "
        "policy, or the whole model."
    )


def _scale_of(cnn: NatureCNN) -> dict[str, Any]:
    """Returns the argument for images that are standardised."""
    return {"standardize": True} if cnn.standardize else {}


def load(path: Any, trust: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a policy: its state dict, and arguments of its constructor to be given to :func:`with_extractor`.

    Args:
        path: a path or a file opened for reading.
        trust: also read pickled values and files of Stable-Baselines3, which can run any code.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a policy, or not one that can be read without ``trust``.
    """
    with opened(path, "rb", suffix="") as file:
        name = name_of(file, path)
        try:
            with open_zip(file, name) as archive:
                members = {member.rpartition("/")[2]: member for member in check_members(archive, name)}
                if {"policy.json", "weights.safetensors"} <= members.keys():  # in version 0.1.0 they are in no folder
                    text = archive.read(members["policy.json"])
                    parameters = decode(plain_json.parse_object(text, f"{name}: policy.json"), trust)
                    arrays = read_arrays(archive.read(members["weights.safetensors"]), f"{name}: weights.safetensors")
                    warn_not_finite(arrays, name)
                    weights = {key: torch.from_numpy(array) for key, array in arrays.items()}
                    return weights, _trusted(parameters)
        except DAMAGED as error:
            raise ValueError(f"path={str(path)!r} is not a policy file, or it is damaged ({error}).") from error
        if "data.pkl" not in members:
            raise ValueError(f"path={str(path)!r} is not a policy file. It holds {sorted(members)[:8]}.")
        if not trust:
            raise ValueError(
                f"path={str(path)!r} is a policy as Stable-Baselines3 saves it: a pickle, which can run any code. Pass "
                "trust=True if you trust the file, or load the whole model's .zip, which needs no trust."
            )
        file.seek(0)
        stored = torch.load(file, map_location="cpu", weights_only=False)
        return stored["state_dict"], stored["data"]


def with_extractor(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns ``parameters`` of :func:`load` with the features extractor that they describe, if any."""
    described = parameters.get("features_extractor")
    if described is None or isinstance(described, nn.Module):
        return parameters
    space, normalize_images = parameters["observation_space"], parameters["normalize_images"]
    return parameters | {
        "features_extractor": make_extractor(space, described["class"], described["kwargs"], normalize_images)
    }


def _trusted(parameters: dict[str, Any]) -> dict[str, Any]:
    if left_out := [name for name, value in parameters.items() if holds_untrusted(value)]:
        raise ValueError(f"the policy's arguments {left_out} are pickled code. Pass trust=True if you trust the file.")
    return parameters
