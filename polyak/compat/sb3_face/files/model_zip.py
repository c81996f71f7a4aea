"""A model's zip as Stable-Baselines3 1.0 to 2.9 and sb3-contrib write it.

======================  ==============================================================================================
``data``                JSON; what JSON cannot hold is a pickle in base64
``policy.pth``          the networks' tensors, targets included
``*.optimizer.pth``     an optimizer's state dict; ``ent_coef_optimizer.pth`` for the temperature's
``pytorch_variables.pth`` further tensors; ``tensors.pth`` in old files
``system_info.txt``     versions of what wrote it; absent from old files
======================  ==============================================================================================
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from polyak.archive import DAMAGED, check_members, open_zip
from polyak.checkpoint.parameters import optimizer_key, split_optimizer
from polyak.checkpoint.saved import Saved
from polyak.compat.sb3_face.files import description
from polyak.compat.sb3_face.files.description import Entry
from polyak.compat.sb3_face.files.names import renamed, renamed_memory
from polyak.envs.reading import plain_json
from polyak.nn.compiled import plain_name

_VARIABLES = ("pytorch_variables", "tensors")
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, KeyError, TypeError, AttributeError, IndexError, AssertionError)
"""Errors of torch for a file that it cannot read."""
_Tensors = dict[str, Tensor]


def read(
    archive: zipfile.ZipFile,
    name: str,
    trust: bool = False,
    skip: Collection[str] = (),
    weights_only: bool = False,
) -> Saved:
    """Reads a model's zip into memory, in the form of polyak's own files.

    Args:
        archive: the open zip.
        name: its name in messages.
        trust: also run pickles with names that are not on the list.
        skip: names whose values the caller gives; the file's are not read.
        weights_only: do not read the description.

    Raises:
        ValueError: the zip is damaged, or of an algorithm that polyak does not have.
    """
    members = check_members(archive, name, compressed=True)
    parts = {
        member.removesuffix(".pth"): load_tensors(archive.read(member), f"{name}: {member}")
        for member in sorted(members)
        if member.endswith(".pth") and "/" not in member
    }
    weights = _tensors(parts.pop("policy", {}), f"{name}: policy.pth")
    if any(key.startswith("quantile_net.") for key in weights):
        weights = renamed(weights)
    if any(key.startswith("lstm_actor.") for key in weights):
        weights = renamed_memory(weights)
    variables: dict[str, Any] = {}
    for part in _VARIABLES:
        variables |= _variables(parts.pop(part, None), f"{name}: {part}.pth")
    optimizers = {key: _optimizer(state, weights) for key, state in parts.items()}
    if not optimizers and weights and all(key.startswith("action_net.") for key in weights):  # ARS has none
        optimizers = {optimizer_key("policy"): torch.optim.SGD(map(torch.nn.Parameter, weights.values())).state_dict()}

    saved = Saved({}, foreign=frozenset({"lr_schedule"}))
    if not weights_only:
        entries = _read_data(archive, members, name, trust, skip)
        saved.info = description.describe(entries, weights, optimizers, name)
        saved.foreign |= entries.keys()
        saved.state = description.observations_in_hand(entries)
        saved.info["system"] = _system_info(archive, members)
    saved.info["optimizers"] = {}
    for key, state in optimizers.items():
        short = next((short for short in ("policy", "actor", "critic", "ent_coef") if optimizer_key(short) == key), key)
        saved.info["optimizers"][short], arrays = split_optimizer(short, state)
        saved.optimizers |= arrays
    saved.networks = {f"policy.{key}": tensor.numpy() for key, tensor in _with_copies(weights).items()}
    if isinstance(temperature := variables.get("log_ent_coef"), Tensor):
        saved.networks["log_ent_coef"] = (
            _tensors({"log_ent_coef": temperature}, name)["log_ent_coef"].reshape(1).numpy()
        )
    return saved


# -- tensors -----------------------------------------------------------------------------------------------------------


def load_tensors(stored: bytes, what: str) -> Any:
    """Reads one ``.pth`` member, which is a zip too, by torch's restricted reader.

    Raises:
        ValueError: it is damaged, or holds more than tensors.
    """
    try:
        with open_zip(io.BytesIO(stored), what) as archive:
            check_members(archive, what)
        return torch.load(io.BytesIO(stored), map_location="cpu", weights_only=True)
    except (*DAMAGED, *_UNREADABLE) as error:
        raise ValueError(f"{what} cannot be read as tensors: {_why_not(error)}.") from error


def _why_not(error: BaseException) -> str:
    """Describes an error in polyak's words: torch's own message advises to run the file's content."""
    if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
        return f"it names {named[1]}, which is no tensor, and nothing in it is run"
    return f"it is damaged, or holds something else ({type(error).__name__})"


def _variables(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ValueError(f"{what} holds {type(value).__name__}, not a dict of tensors: it is damaged.")
    return value or {}


def _tensors(state: Any, what: str) -> _Tensors:
    """Returns a state dict after checking its tensors.

    Raises:
        ValueError: it is not a dict of tensors, or a tensor claims more numbers than the file holds.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"{what} holds {type(state).__name__}, not a dict of tensors: it is damaged.")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{what}: {name!r:.80} is not a tensor: it is damaged.")
        _check_tensor(tensor, f"{what}: {name}")
    return {plain_name(name): _widened(tensor).detach() for name, tensor in state.items()}


def _check_tensor(tensor: Tensor, what: str) -> None:
    if tensor.is_quantized or tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() < 2):
        raise ValueError(f"{what} is of type {tensor.dtype}, which no network here has: the file is damaged.")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(f"{what} is a tensor on {tensor.device}, {tensor.layout}: the file is damaged.")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(f"{what} claims the shape {tuple(tensor.shape)}, but its numbers are not there.")


def _optimizer(state: Any, weights: _Tensors) -> dict[str, Any]:
    """Returns an optimizer's state dict. Before 2.4, that of DQN listed the target network's parameters too, after the
    others.

    Raises:
        ValueError: it is not a state dict.
    """
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    values = state.get("state") if isinstance(state, Mapping) else None
    if not isinstance(groups, list) or not isinstance(values, dict) or not all(isinstance(g, dict) for g in groups):
        raise ValueError("an optimizer in the file has no param_groups and state: it is damaged.")
    for index, entry in values.items():
        if not isinstance(index, int) or not isinstance(entry, dict):
            raise ValueError(f"an optimizer in the file has a state for {index!r:.80}: it is damaged.")
    for entry in (*values.values(), *groups):
        for key, value in entry.items():
            _check_entry(key, value)
    values = {index: {key: _widened(value) for key, value in entry.items()} for index, entry in values.items()}
    online = sum(key.startswith("q_net.") for key in weights)
    if online and len(groups) == 1 and len(groups[0].get("params", ())) > online:
        kept = groups[0]["params"][: len(groups[0]["params"]) // 2]
        groups = [{**groups[0], "params": kept}]
        values = {index: value for index, value in values.items() if index in kept}
    return {"state": values, "param_groups": groups}


def _check_entry(key: Any, value: Any) -> None:
    """Refuse entries other than tensors, numbers and lists of these: they could expand when they are copied."""
    if isinstance(value, Tensor):
        _check_tensor(value, f"an optimizer's {key!s:.80}")
        return
    parts = value if isinstance(value, list | tuple) else [value]
    if not isinstance(key, str) or not all(
        isinstance(part, Tensor | bool | int | float | str | None) for part in parts
    ):
        raise ValueError(f"an optimizer in the file has a {key!s:.80} that is no number, nor several: it is damaged.")


def _widened(value: Any) -> Any:
    """numpy has no bfloat16."""
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


def _with_copies(weights: _Tensors) -> _Tensors:
    """Returns an actor-critic's shared features under each of the three names that it has had since 1.7."""
    if not any(key.startswith("mlp_extractor.") for key in weights):
        return weights
    shared = {key: tensor for key, tensor in weights.items() if key.startswith("features_extractor.")}
    copies = {f"{side}_{key}": tensor for side in ("pi", "vf") for key, tensor in shared.items()}
    return {**copies, **weights}


# -- the description ---------------------------------------------------------------------------------------------------


def _read_data(
    archive: zipfile.ZipFile, members: set[str], name: str, trust: bool, skip: Collection[str]
) -> dict[str, Entry]:
    if "data" not in members:
        raise ValueError(f"{name} holds weights but no description of the model: load it with set_parameters().")
    data = plain_json.parse_object(archive.read("data"), f"{name}: its data")
    wanted = description.READ - set(skip)
    return {key: description.read_entry(value, trust) if key in wanted else None for key, value in data.items()}


def _system_info(archive: zipfile.ZipFile, members: set[str]) -> dict[str, str]:
    if "system_info.txt" not in members:
        return {}
    lines = archive.read("system_info.txt").decode("utf-8", "replace").splitlines()
    pairs = (line.removeprefix("- ").partition(": ") for line in lines)
    return {key: value for key, colon, value in pairs if colon}
