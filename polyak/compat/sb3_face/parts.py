"""Further networks, optimizers and tensors of a user's own algorithm, besides its policy.

They hang on the model as attributes, such as ``model.ent_coef_optimizer``. A file holds them by their names: tensors
under ``parts/`` of its state, the numbers of optimizers in its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyak.arrays import under
from polyak.checkpoint.parameters import join_optimizer, optimizer_key, saved_parameters, split_optimizer
from polyak.checkpoint.saved import Arrays, Saved, check_counter, join_tree, prefixed, split_tree
from polyak.compat.sb3_face.functions import recursive_getattr, recursive_setattr
from polyak.learning.learner import Learner

Part = nn.Module | Optimizer | Tensor
Parts = dict[str, Part]


def find_parts(model: Any, names: Iterable[str], learner: Learner) -> Parts:
    """Returns those of the attributes ``names`` (dotted ones, too) that learn and that ``learner`` does not have
    already."""
    known = identities(learner)
    found: Parts = {}
    for name in names:
        part = recursive_getattr(model, name, None)
        if isinstance(part, Part) and id(part) not in known:
            found[name] = part
            known.add(id(part))
    return found


def holds_any(value: Any, known: set[int]) -> bool:
    """Whether a value has one of the identities ``known``, or is a collection with such an item."""
    if isinstance(value, list | tuple | set | frozenset):
        return any(holds_any(item, known) for item in value)
    if isinstance(value, dict):
        return any(holds_any(item, known) for item in value.values())
    return id(value) in known


def identities(learner: Learner) -> set[int]:
    """Returns the identities of the networks, tensors and optimizers of ``learner``."""
    own = (*learner.modules(), *learner.parameters(), *learner.buffers(), *learner.optimizers.values())
    return {id(part) for part in own}


def store(parts: Parts, saved: Saved) -> None:
    """Put the parts into a file."""
    saved.info["parts"] = {}
    for name, part in parts.items():
        arrays: Mapping[str, Any]
        if isinstance(part, Optimizer):
            saved.info["parts"][name], arrays = split_optimizer(name, part.state_dict())
            saved.state |= prefixed("parts", arrays)
            continue
        tensors = part.state_dict() if isinstance(part, nn.Module) else {"": part}
        saved.info["parts"][name] = "module" if isinstance(part, nn.Module) else "tensor"
        saved.state |= prefixed(f"parts/{name}", {key: tensor.numpy(force=True) for key, tensor in tensors.items()})


def stored_parts(saved: Saved) -> dict[str, Any]:
    """Returns the parts that :func:`store` wrote into a file: state dicts and tensors by name."""
    values: dict[str, Any] = {}
    arrays = saved.state_of("parts")
    for name, kind in saved.info.get("parts", {}).items():
        own = under(name, arrays)
        if isinstance(kind, dict):
            values[name] = join_optimizer(kind, own)
        elif kind == "module":
            values[name] = {key: torch.from_numpy(array) for key, array in own.items()}
        else:
            values[name] = torch.from_numpy(own[""])
    return values


def all_parameters(saved: Saved) -> dict[str, Any]:
    """Returns the result of ``get_parameters()`` of the saved model, and further tensors of it."""
    own = saved_parameters(saved) | stored_parts(saved)
    if "given" not in saved.info:
        return own
    return {name: value for name, value in own.items() if isinstance(value, Tensor)} | given_parameters(saved)


# -- overrides of get_parameters() -------------------------------------------------------------------------------------


def store_given(values: Mapping[str, Any], saved: Saved) -> None:
    """Store the result of an overridden ``get_parameters()`` in a file, in place of the model's own parameters."""
    policy = {f"policy.{key}": tensor.numpy(force=True) for key, tensor in values.get("policy", {}).items()}
    saved.networks = {key: a for key, a in saved.networks.items() if key[:7] != "policy." or not policy} | policy
    optimizers = {optimizer_key(name): name for name in saved.info["optimizers"]}
    for key in optimizers.keys() & values.keys():
        name = optimizers[key]
        saved.info["optimizers"][name], arrays = split_optimizer(name, values[key])
        saved.optimizers |= arrays
    own = {"policy", *optimizers, *saved.info.get("parts", {})}
    further: Arrays = {}
    others = {name: split_tree(_as_arrays(value), further) for name, value in values.items() if name not in own}
    saved.info["given"] = {"names": list(values), "others": others}
    saved.state |= prefixed("given", further)


def given_parameters(saved: Saved) -> dict[str, Any]:
    """Returns the result of ``get_parameters()`` of the saved model, also where a user's class overrides it."""
    own = {name: value for name, value in saved_parameters(saved).items() if isinstance(value, Mapping)}
    own |= {name: value for name, value in stored_parts(saved).items() if isinstance(value, Mapping)}
    if (given := saved.info.get("given")) is None:
        return own
    arrays = saved.state_of("given")
    others = {name: _as_tensors(join_tree(value, arrays)) for name, value in given["others"].items()}
    return {name: value for name, value in (own | others).items() if name in given["names"]}


def _as_arrays(tree: Any) -> Any:
    """Returns the tensors of nested dicts and lists as arrays."""
    if isinstance(tree, Tensor):
        return tree.numpy(force=True)
    if isinstance(tree, Mapping):
        return {str(key): _as_arrays(value) for key, value in tree.items()}
    return [_as_arrays(item) for item in tree] if isinstance(tree, list | tuple) else tree


def _as_tensors(tree: Any) -> Any:
    """Inverts :func:`_as_arrays`; numbers as keys, which optimizers have, are numbers again."""
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree)
    if isinstance(tree, dict):
        return {int(key) if key.isdigit() else key: _as_tensors(value) for key, value in tree.items()}
    return [_as_tensors(item) for item in tree] if isinstance(tree, list) else tree


def restore_besides(learner: Learner, saved: Saved) -> None:
    """Load the parts of a learner that ``get_parameters()`` does not return."""
    besides = {name: torch.from_numpy(a) for name, a in saved.networks.items() if not name.startswith("policy.")}
    learner.load_networks(learner.networks() | besides)
    check_counter("learner_steps", saved.info["learner_steps"])
    learner.steps = int(saved.info["learner_steps"])


def load_part(model: Any, name: str, value: Any, exact_match: bool = True) -> None:
    """Load one part of ``model`` from the file.

    Raises:
        ValueError: the model does not make such a part.
    """
    part = recursive_getattr(model, name, None)
    if isinstance(value, Tensor):
        if isinstance(part, Tensor) and part.shape == value.shape:
            with torch.no_grad():
                part.copy_(value)  # in place: an optimizer may hold it
        else:
            recursive_setattr(model, name, value.to(model.device))
    elif isinstance(part, nn.Module):
        part.load_state_dict(value, strict=exact_match)
    elif isinstance(part, Optimizer):
        part.load_state_dict(value)
    else:
        cls = type(model).__name__
        raise ValueError(
            f"the file holds {name!r}, which this {cls} does not have: let {cls}._setup_model() make it, or take it "
            "out of the file with _excluded_save_params()."
        )
