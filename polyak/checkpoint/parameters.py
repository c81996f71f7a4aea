"""A learner's parameters and optimizer states: under Stable-Baselines3's names, and in a model file."""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.checkpoint.saved import Arrays, Saved, check_counter, prefixed
from polyak.checkpoint.serialise import decode, encode
from polyak.formats import CONSTANTS, TENSORS_RENAMED
from polyak.learning.learner import Learner
from polyak.learning.vtrace_learner import PublishedWeights, VTraceLearner
from polyak.nn.compiled import plain_name

_KERNEL_OPTIONS = ("foreach", "fused", "capturable", "differentiable")
"""Options of an optimizer's kernels, which are chosen at run time and not loaded."""


def optimizer_key(name: str) -> str:
    """Returns Stable-Baselines3's name of a learner's optimizer."""
    return "ent_coef_optimizer" if name == "ent_coef" else f"{name}.optimizer"


def parameters(learner: Learner) -> dict[str, Any]:
    """Returns ``{"policy": ..., "actor.optimizer": ..., ...}``."""
    optimizers = {optimizer_key(name): optimizer.state_dict() for name, optimizer in learner.optimizers.items()}
    return {"policy": learner.policy.state_dict(), **optimizers}


def set_parameters(learner: Learner, values: Mapping[str, Any], exact_match: bool = True) -> None:
    """Load the result of :func:`parameters`, and tensors of the learner itself (the temperature) by name."""
    targets = {"policy", *map(optimizer_key, learner.optimizers)}
    optional = {name for name, _ in learner.named_parameters(recurse=False)}
    if unknown := sorted(values.keys() - targets - optional):
        raise ValueError(f"{unknown[0]!r} is not a part of this model, whose parts are {sorted(targets | optional)}.")
    if exact_match and (missing := sorted(targets - values.keys())):
        raise ValueError(
            f"exact_match=True needs every part of the model, but {missing} are missing. Pass exact_match=False to"
            " load only what is there."
        )
    if "policy" in values:
        learner.policy.load_state_dict(values["policy"], strict=exact_match)
    for name in learner.optimizers:
        if (key := optimizer_key(name)) in values:
            load_optimizer(learner, name, values[key])
    for name in optional & values.keys():
        with torch.no_grad():
            learner.get_parameter(name).copy_(values[name])


def load_optimizer(learner: Learner, name: str, state: Mapping[str, Any]) -> None:
    """Load an optimizer's state dict, possibly from another kernel, device or library.

    Raises:
        ValueError: it belongs to other parameters.
    """
    optimizer = learner.optimizers[name]
    groups = [
        group | {key: own[key] for key in _KERNEL_OPTIONS if key in own}
        for group, own in zip(state["param_groups"], optimizer.param_groups, strict=False)
    ]
    if len(groups) == len(state["param_groups"]):
        _check_state_shapes(name, optimizer, state)
        for group, own in zip(groups, optimizer.param_groups, strict=False):
            _check_options(name, group, own)
        state = {**state, "param_groups": groups}
    learner.load_optimizer(name, dict(state))


def _check_options(name: str, group: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Check that options have the types of the model's optimizer: torch's error would name neither file nor option."""
    for key in group.keys() & own.keys() - {"params"}:
        if not _is_alike(group[key], own[key]):
            raise ValueError(
                f"the {name} optimizer of the file has {key}={group[key]!r:.100}, that of the model {own[key]!r:.100}: "
                "the file is damaged."
            )


def _is_alike(value: Any, mine: Any) -> bool:
    if isinstance(mine, tuple | list):
        return isinstance(value, tuple | list) and len(value) == len(mine) and all(map(_is_number, value))
    if isinstance(mine, bool) or not _is_number(mine):
        return mine is None or type(value) is type(mine)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool(torch.isfinite(value).all())
    return isinstance(value, int | float) and math.isfinite(value)


def _check_state_shapes(name: str, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Check the shapes of an optimizer's state, which torch does not check and kernels rely on."""
    if type(optimizer).__name__ in ("Adafactor", "LBFGS"):  # other shapes than the parameters'
        return
    own = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [index for group in state["param_groups"] for index in group["params"]]
    if len(own) != len(numbers):
        raise ValueError(
            f"the {name} optimizer of the file has {len(numbers)} parameters, that of the model {len(own)}: they are "
            "of different networks. Check policy_kwargs."
        )
    shapes = dict(zip(numbers, (p.shape for p in own), strict=True))
    for index, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.numel() != 1 and value.shape != shapes.get(index):
                raise ValueError(
                    f"the {name} optimizer of the file has {key} of shape {tuple(value.shape)} for parameter {index}, "
                    f"whose shape is {tuple(shapes.get(index, ()))}: the file is damaged."
                )


# -- in a model file ---------------------------------------------------------------------------------------------------


def store(learner: Learner, saved: Saved) -> None:
    """Store the learner's networks and optimizers in a file."""
    learner.adopt_optimizers()
    saved.info["learner_steps"], saved.info["optimizers"] = learner.steps, {}
    for name, optimizer in learner.optimizers.items():
        saved.info["optimizers"][name], arrays = split_optimizer(name, optimizer.state_dict())
        saved.optimizers |= arrays
    saved.networks = {name: tensor.numpy(force=True) for name, tensor in learner.networks().items()}
    if isinstance(learner, VTraceLearner):
        _store_published(learner, saved)


def restore(learner: Learner, saved: Saved) -> None:
    """Restore what :func:`store` wrote.

    Raises:
        ValueError: the file belongs to other networks or optimizers.
        RuntimeError: names or shapes of weights differ.
    """
    own = learner.networks()
    for name, array in ((plain_name(name), array) for name, array in saved.networks.items()):
        if name in own and (array.dtype.kind == "f") != own[name].is_floating_point():
            raise ValueError(f"the file has {name} as {array.dtype}, the model as {own[name].dtype}: it is damaged.")
    found = {plain_name(name): torch.from_numpy(array) for name, array in saved.networks.items()}
    learner.load_networks(as_named_now(found, learner.networks()))
    for name in learner.optimizers:
        if name not in saved.info["optimizers"]:
            raise ValueError(f"the file has no {optimizer_key(name)}, only {sorted(saved.info['optimizers'])}.")
        load_optimizer(learner, name, optimizer_state(saved, name))
    check_counter("learner_steps", saved.info["learner_steps"])
    learner.steps = int(saved.info["learner_steps"])
    if isinstance(learner, VTraceLearner) and "broadcast" in saved.info:
        _restore_published(learner, saved)


def _store_published(learner: VTraceLearner, saved: Saved) -> None:
    """Store the actors' weights, if the learner's are newer."""
    saved.info["since_broadcast"] = learner.unpublished
    if learner.published is not None and learner.unpublished:
        saved.info["broadcast"], tensors = learner.published
        named = zip(learner.policy.state_dict(), tensors, strict=True)
        saved.state |= prefixed("broadcast", {name: tensor.numpy(force=True) for name, tensor in named})


def _restore_published(learner: VTraceLearner, saved: Saved) -> None:
    own, found = learner.policy.state_dict(), saved.state_of("broadcast")
    if {name: tuple(part.shape) for name, part in own.items()} != {name: part.shape for name, part in found.items()}:
        raise ValueError("the weights of its actors that the file has are of other networks: it is damaged.")
    check_counter("broadcast", version := saved.info["broadcast"])
    tensors = [torch.from_numpy(np.array(found[name])).to(part) for name, part in own.items()]
    learner.published = PublishedWeights(int(version), tensors)


def saved_parameters(saved: Saved) -> dict[str, Any]:
    """Returns the saved model's :func:`parameters`."""
    tensors = {name: torch.from_numpy(array) for name, array in saved.networks.items()}
    policy = {k.removeprefix("policy."): v for k, v in tensors.items() if k.startswith("policy.")}
    own = {k: v for k, v in tensors.items() if not k.startswith("policy.")}
    optimizers = {optimizer_key(name): optimizer_state(saved, name) for name in saved.info["optimizers"]}
    return {"policy": policy, **optimizers, **own}


def split_optimizer(name: str, saved: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Splits an optimizer's state dict into JSON values and arrays for safetensors."""
    numbers: dict[str, dict[str, Any]] = {}
    arrays: Arrays = {}
    for index, values in saved["state"].items():
        numbers[str(index)] = {key: value for key, value in values.items() if not isinstance(value, Tensor)}
        arrays |= {f"{name}/{index}/{k}": v.numpy(force=True) for k, v in values.items() if isinstance(v, Tensor)}
    groups = [{key: _number(value) for key, value in group.items()} for group in saved["param_groups"]]
    return {"state": numbers, "groups": groups}, arrays


def _number(value: Any) -> Any:
    return encode(value.item() if isinstance(value, Tensor) and value.dim() == 0 else value)


def optimizer_state(saved: Saved, name: str) -> dict[str, Any]:
    """Returns the state dict of a learner's optimizer from a file of :func:`split_optimizer`."""
    prefix = f"{name}/"
    arrays = {key[len(prefix) :]: array for key, array in saved.optimizers.items() if key.startswith(prefix)}
    return join_optimizer(saved.info["optimizers"][name], arrays)


def join_optimizer(numbers: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Inverts :func:`split_optimizer`; the arrays' names lack the optimizer's name."""
    state: dict[int, dict[str, Any]] = {int(i): dict(values) for i, values in numbers["state"].items()}
    for key, array in arrays.items():
        index, value_name = key.split("/")
        state.setdefault(int(index), {})[value_name] = torch.from_numpy(array)
    groups = [{key: decode(value) for key, value in group.items()} for group in numbers["groups"]]
    return {"state": state, "param_groups": groups}


def as_named_now(state: Mapping[str, Any], own: Mapping[str, Tensor]) -> dict[str, Any]:
    """Renames a file's tensors to the model's present names, and adds constants that the file lacks.

    Args:
        state: name in the file -> tensor.
        own: name -> tensor of the model.
    """
    found = {name: tensor for name, tensor in own.items() if name.endswith(CONSTANTS) and name not in state}
    for name, tensor in state.items():
        others = (re.sub(before, after, name) for before, after in TENSORS_RENAMED)
        found[name if name in own else next((other for other in others if other in own), name)] = tensor
    return found
