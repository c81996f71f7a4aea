"""Writes a model as a zip that an installed Stable-Baselines3 2.9 loads.

polyak's networks have the peer's names, except QRDQN's, so that the tensors are written unchanged. Values of the
description that JSON cannot hold are pickled by :mod:`.writer`, which names the peer's classes without importing them.

Options that the peer's algorithm does not have are refused unless they are at their defaults, including those that
affect training alone: the peer would silently continue without them.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from polyak.archive import opened
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.parameters import parameters
from polyak.collecting.train_freq import convert_train_freq
from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.names import (
    ALGORITHMS,
    BUFFER_OPTIONS,
    NOT_ATTRIBUTES,
    Name,
    PolicyName,
    renamed,
    renamed_memory,
)
from polyak.compat.sb3_face.files.writer import Call, Global, Object, dumps, enum_member
from polyak.compat.sb3_face.recurrent.options import to_contrib
from polyak.experience import GoalSelectionStrategy
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.network_algorithm import NetworkAlgorithm
from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule, get_schedule_fn

_VERSION = "2.9.2"
"""The version of Stable-Baselines3 whose files are written."""
_COUNTERS = (
    "num_timesteps",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_n_updates",
    "_episode_num",
    "_current_progress_remaining",
    "n_envs",
    "exploration_rate",
    "_n_calls",
)


def save(model: NetworkAlgorithm, path: Any) -> None:
    """Write ``model``; see :meth:`polyak.algorithm.Algorithm.save_sb3`.

    Raises:
        ValueError: the model has a part without an equivalent in the peer; the message names it.
    """
    algorithm = checkpoint.lineage(type(model))[-1]
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"models of {algorithm} cannot be written for Stable-Baselines3 and sb3-contrib, only those of "
            f"{', '.join(ALGORITHMS)}. Use save()."
        )
    _check_options(model, algorithm)
    model.normalisation.say_not_in("a file of Stable-Baselines3's")
    data = {key: _entry(key, value) for key, value in _description(model, algorithm).items()}
    with opened(path, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("data", json.dumps(data, indent=4))
        for name, state in _tensors(model, algorithm).items():
            archive.writestr(f"{name}.pth", _stored(state))
        archive.writestr("_stable_baselines3_version", _VERSION)
        archive.writestr("system_info.txt", _system_info())


# -- unsupported by the peer -------------------------------------------------------------------------------------------


def _check_options(model: NetworkAlgorithm, algorithm: str) -> None:
    """Refuse actions and options that the peer's algorithm, or its policy, does not have.

    Raises:
        ValueError: the action space is composed, or an option is not at its default; the message names it.
    """
    if not isinstance(model.action_space, _namesake(algorithm).action_spaces):
        raise ValueError(f"Stable-Baselines3's {algorithm} cannot act in {model.action_space}. Use save().")
    standard, known = _options_of(algorithm), _policy_options_of(algorithm)
    policy_is_theirs = isinstance(_policy_class(model, algorithm), Global)
    asked = model._policy_options()
    asked = to_contrib(asked) if algorithm == "RecurrentPPO" else asked
    unknown = sorted(asked.keys() - known) if policy_is_theirs else []
    if (asked.get("features_extractor_kwargs") or {}).get("standardize") and policy_is_theirs:
        unknown.append("features_extractor_kwargs['standardize']")
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name not in standard | NOT_ATTRIBUTES and value not in (field.default, {}):
            fix = f" To write a model that trains on without it, set model.{field.name} = {field.default!r} first."
            raise ValueError(
                f"{field.name}={value!r:.100} has no equal in Stable-Baselines3: its {algorithm} has no such option."
                f"{'' if unknown else fix}"
            )
    if ((model.policy_kwargs or {}).get("optimizer_kwargs") or {}).get("l1"):
        raise ValueError("policy_kwargs: optimizer_kwargs['l1'] has no equal in Stable-Baselines3.")
    if getattr(model, "sde_sample_freq", -1) == "episode":
        raise ValueError("sde_sample_freq='episode' has no equal in Stable-Baselines3: give a number of steps.")
    if getattr(model, "target_policy_noise", 0.0) is None:
        raise ValueError("target_policy_noise=None has no equal in Stable-Baselines3: its noise is normal.")
    if unknown:
        raise ValueError(
            f"policy_kwargs: {unknown} have no equal in Stable-Baselines3, whose policy of {algorithm} takes "
            f"{sorted(known)}."
        )


def _options_of(algorithm: str) -> set[str]:
    """Returns the names of the peer's hyper-parameters: the positional parameters of its namesake here."""
    parameters = inspect.signature(_namesake(algorithm)).parameters.values()
    return {p.name for p in parameters if p.kind is not p.KEYWORD_ONLY}


def _policy_options_of(algorithm: str) -> set[str]:
    """Returns names that the peer's ``policy_kwargs`` may hold."""
    policy = next(iter(_namesake(algorithm).policy_aliases.values()))
    return set(inspect.signature(policy).parameters) - {"observation_space", "action_space", "lr_schedule"}


def _namesake(algorithm: str) -> Any:
    return resolve_name(f"polyak.compat.sb3_face.algorithms:{algorithm}")  # imported where a file is written only


# -- tensors -----------------------------------------------------------------------------------------------------------


def _tensors(model: NetworkAlgorithm, algorithm: str) -> dict[str, Any]:
    """Returns the members in the peer's order: further tensors, then every state dict."""
    parts = parameters(model.learner)
    if algorithm == "QRDQN" and any(name.startswith("q_net.") for name in parts["policy"]):
        parts["policy"] = renamed(parts["policy"])
    if any(name.startswith("actor_memory.") for name in parts["policy"]):
        parts["policy"] = renamed_memory(parts["policy"])
    variables: dict[str, Tensor] = {}
    own = dict(model.learner.named_parameters(recurse=False))
    if "log_ent_coef" in own:
        variables["log_ent_coef"] = own["log_ent_coef"].detach()
    elif "ent_coef" in model.learner.tunables and isinstance(model, OffPolicyAlgorithm):
        variables["ent_coef_tensor"] = torch.tensor(float(model.learner.tunables["ent_coef"]))
    optimizers = {key: _portable(state) for key, state in parts.items() if key != "policy"}
    if algorithm == "ARS":  # its policy has no optimizer there
        optimizers = {}
    return {"pytorch_variables": variables, "policy": parts["policy"], **optimizers}


def _portable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an optimizer's state dict without the details of its implementation and device."""
    kernel = {"foreach": None, "fused": None, "capturable": False, "differentiable": False}
    groups = [
        {
            key: kernel[key] if key in kernel else _number(value) if isinstance(value, Tensor) else value
            for key, value in group.items()
        }
        for group in state["param_groups"]
    ]
    return {"state": dict(state["state"]), "param_groups": groups}


def _number(value: Tensor) -> float:
    """3e-4 kept as float32 is 3e-4 and not 0.00030000001424923539."""
    return float(str(value.numpy(force=True)[()]))


def _stored(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(_on_cpu(state), file)
    return file.getvalue()


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(item) for key, item in value.items()}
    return value


# -- the description ---------------------------------------------------------------------------------------------------


def _description(model: NetworkAlgorithm, algorithm: str) -> dict[str, Any]:
    """Returns the attributes that the peer sets on a new model, without those that it derives from others."""
    left_out = NOT_ATTRIBUTES | {field.name for field in fields(model)} - _options_of(algorithm)
    hyper = {key: value for key, value in model.hyperparameters().items() if key not in left_out}
    values: dict[str, Any] = {"policy_class": _policy_class(model, algorithm), **hyper}
    values["policy_kwargs"] = _policy_kwargs(model, algorithm)
    values |= {key: getattr(model, key) for key in _COUNTERS if hasattr(model, key)}
    values |= {"_stats_window_size": model.stats_window_size, "start_time": int(model.start_time)}
    values |= {"observation_space": model.observation_space, "action_space": model.action_space}
    values |= {
        "ep_info_buffer": _deque([dict(info) for info in model.ep_info_buffer], model.stats_window_size),
        "ep_success_buffer": _deque([bool(x) for x in model.ep_success_buffer], model.stats_window_size),
        "_last_obs": None,
        "_last_episode_starts": None,
        "_last_original_obs": None,
    }
    if algorithm == "QRDQN":
        values["n_quantiles"] = attrgetter("policy.q_net.n_quantiles")(model)
    if algorithm == "ARS":
        n_delta, n_top = values["n_delta"], values["n_top"]
        values["delta_std_schedule"] = get_schedule_fn(values.pop("delta_std"))
        values |= {"n_top": n_delta if n_top is None else n_top, "pop_size": 2 * n_delta}
    if isinstance(model, OffPolicyAlgorithm):
        frequency = convert_train_freq(model.train_freq)
        values["train_freq"] = Call(
            names.TRAIN_FREQ, (frequency.frequency, Call(names.TRAIN_UNIT, (str(frequency.unit.value),)))
        )
        values["replay_buffer_kwargs"] = _buffer_options(model)
    elif isinstance(model, OnPolicyAlgorithm):
        values.setdefault("rollout_buffer_class", None)
        values["rollout_buffer_kwargs"] = dict(values.get("rollout_buffer_kwargs") or {})
    return values


def _buffer_options(model: OffPolicyAlgorithm) -> dict[str, Any]:
    options = model.hyperparameters().get("replay_buffer_kwargs") or {}
    if unknown := sorted(options.keys() - set(BUFFER_OPTIONS)):
        raise ValueError(f"replay_buffer_kwargs: {unknown} have no equal in Stable-Baselines3.")
    return dict(options)


def _policy_class(model: NetworkAlgorithm, algorithm: str) -> Any:
    """Returns the peer's class for a policy name, or for polyak's equal of that class."""
    policy = model._policy_name
    known = [(name, found) for name, found in names.POLICIES.items() if algorithm in found.algorithms]
    for name, found in known:
        if policy in (found.alias, found.alias.replace("Lstm", "")) or _stands_for(policy, name, found, algorithm):
            return Global(name)
    if isinstance(policy, str) or getattr(policy, "__module__", "polyak.").startswith("polyak."):
        raise ValueError(f"policy={policy!r} has no equal among Stable-Baselines3's policies of {algorithm}.")
    return policy


def _stands_for(policy: Any, name: Name, found: PolicyName, algorithm: str) -> bool:
    """Whether a class of :mod:`polyak.compat` answers the peer's name."""
    if not isinstance(policy, type) or not policy.__module__.startswith("polyak.compat."):
        return False
    family = {"DDPG": "TD3"}.get(algorithm, algorithm)
    return policy.__name__ == name[1] or policy.__name__ == f"{family}{found.alias}"


def _policy_kwargs(model: NetworkAlgorithm, algorithm: str) -> dict[str, Any]:
    options = {key: value for key, value in (model.policy_kwargs or {}).items() if value is not None}
    if algorithm == "A2C" and "optimizer_class" not in options:
        recipe = model.make_optimizer()
        if recipe.cls is torch.optim.RMSprop:
            options |= {"optimizer_class": recipe.cls, "optimizer_kwargs": dict(recipe.kwargs)}
    if algorithm == "QRDQN":
        recipe = model.make_optimizer()
        options |= {"optimizer_class": recipe.cls, "optimizer_kwargs": dict(recipe.kwargs)}
    if algorithm == "RecurrentPPO":
        options = to_contrib(options)
    if algorithm == "DDPG":
        options.setdefault("n_critics", 1)
    if algorithm in ("SAC", "TQC", "CrossQ"):
        options["use_sde"] = getattr(model, "use_sde", False)
    return options


def _deque(items: list[Any], maxlen: int) -> Any:
    return Call(names.DEQUE, (items, maxlen))


# -- one entry ---------------------------------------------------------------------------------------------------------


def _entry(key: str, value: Any) -> Any:
    """Returns a value as JSON has it, or as the pickle of the peer's equal of it."""
    try:
        json.dumps(value)
        return value
    except TypeError:
        pass
    try:
        pickled = dumps(_equal(value))
    except ValueError as error:
        if _is_ours(value):
            raise ValueError(f"{key}={value!r:.100} cannot be written for Stable-Baselines3: {error}") from error
        pickled = cloudpickle.dumps(value)  # a user's own function or class
    shown = value.name[1] if isinstance(value, Global | Object | Call) else type(value).__name__
    return {":type:": f"<class '{shown}'>", ":serialized:": base64.b64encode(pickled).decode()}


def _is_ours(value: Any) -> bool:
    owner = value if isinstance(value, type) else type(value)
    return owner.__module__.startswith("polyak.")


def _equal(value: Any) -> Any:
    """Returns the peer's equal of a value, for :func:`.writer.dumps`."""
    if isinstance(value, dict):
        return {key: _equal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_equal(item) for item in value]
    if type(value) is tuple:
        return tuple(_equal(item) for item in value)
    if isinstance(value, np.generic) and np.ndim(value) == 0:
        return value.item()
    if isinstance(value, GoalSelectionStrategy):
        return enum_member(value, names.GOAL_STRATEGY)
    make = _EQUALS.get(type(value))
    return value if make is None else make(value)


def _float_schedule(value: FloatSchedule) -> Object:
    inner = _equal(value.value_schedule)
    if not isinstance(inner, Object):
        raise ValueError(f"the schedule {value.value_schedule!r:.100} is a function")
    return Object(names.FLOAT_SCHEDULE, {"value_schedule": inner})


def _noise(name: Name, attributes: tuple[str, ...], value: NormalActionNoise | OrnsteinUhlenbeckActionNoise) -> Object:
    state = {attribute: getattr(value, attribute) for attribute in attributes}
    return Object(name, state | {"_dtype": np.dtype(value._dtype).type})


def _vectorized(value: VectorizedActionNoise) -> Object:
    base = _equal(value.base_noise)
    return Object(
        names.VECTORIZED_NOISE, {"n_envs": value.n_envs, "_base_noise": base, "_noises": [base] * value.n_envs}
    )


_EQUALS: dict[type, Callable[[Any], Any]] = {
    FloatSchedule: _float_schedule,
    ConstantSchedule: lambda value: Object(names.CONSTANT_SCHEDULE, {"val": float(value.val)}),
    LinearSchedule: lambda value: Object(
        names.LINEAR_SCHEDULE,
        {"start": float(value.start), "end": float(value.end), "end_fraction": float(value.end_fraction)},
    ),
    NormalActionNoise: partial(_noise, names.NORMAL_NOISE, ("_mu", "_sigma")),
    OrnsteinUhlenbeckActionNoise: partial(
        _noise, names.OU_NOISE, ("_mu", "_sigma", "_theta", "_dt", "initial_noise", "noise_prev")
    ),
    VectorizedActionNoise: _vectorized,
}


def _system_info() -> str:
    info = checkpoint.system_info()
    lines = {"Stable-Baselines3": f"{_VERSION} (written by polyak)", **info}
    return "".join(f"- {key}: {value}\n" for key, value in lines.items())
