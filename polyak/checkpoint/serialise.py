"""Hyper-parameters and spaces as JSON, and back, without running code from a file.

JSON's own types represent themselves. Other values are objects with one key that starts with ``$``:

=============  ====================================================================================================
``$tuple``     a tuple
``$dict``      a dict whose keys are not all strings, as pairs
``$float``     nan, inf, -inf
``$array``     a numpy array: dtype, shape, base64 of its bytes
``$scalar``    a numpy scalar: dtype and base64
``$class``     a class, as ``module:qualname``
``$enum``      an enum member: class and member name
``$space``     a gymnasium space
``$schedule``  one of :mod:`polyak.schedules`
``$noise``     one of :mod:`polyak.noise`
``$pickle``    anything else (a lambda, an object of a user's class), by cloudpickle; decoded only when trusted
=============  ====================================================================================================

A class named in a file is looked up only in polyak, torch.nn, torch.optim and modules that the program itself has
imported, and is used only if options may hold its kind (a module, an optimizer, a buffer, an enum ...).
"""

import base64
import enum
import importlib
import math
import sys
from pkgutil import resolve_name
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.envs.reading.untrusted import UntrustedError as UntrustedError
from polyak.envs.reading.untrusted import is_ours
from polyak.envs.space_json import MOST_NUMBERS, decode_array, decode_space, encode_array, encode_space
from polyak.experience.replay_buffer import BaseBuffer, ReplayBuffer
from polyak.formats import MODULES_MOVED, ROOMS_MOVED
from polyak.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from polyak.schedules import schedule_from_json, schedule_to_json
from polyak.warning import printable, warn_user

_KINDS: tuple[type, ...] = (
    *(nn.Module, torch.optim.Optimizer, BaseBuffer, ReplayBuffer, enum.Enum, ActionNoise, gym.Env),
    MayBeNamed,
)


class Untrusted:
    """Placeholder of a value that was not loaded because the file is not trusted."""

    def __init__(self, description: str) -> None:
        self.description = printable(description)

    def __repr__(self) -> str:
        return f"<not loaded without trust=True: {self.description}>"


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """Returns a JSON representation of ``value``; see the module's table."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [encode(item) for item in value]
    if type(value) is tuple:
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return _encode_dict(value)
    if isinstance(value, enum.Enum):
        return {"$enum": [class_name(type(value)), value.name]}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return encode_array(value)
    if isinstance(value, np.generic):
        return {"$scalar": encode_array(np.asarray(value))["$array"]}
    if isinstance(value, spaces.Space):
        return {"$space": encode_space(value)}
    if (schedule := schedule_to_json(value)) is not None:
        return {"$schedule": schedule}
    if isinstance(value, ActionNoise) and (noise := _encode_noise(value)) is not None:
        return {"$noise": noise}
    if isinstance(value, type) and _reachable(value):
        return {"$class": class_name(value)}
    return {"$pickle": base64.b64encode(cloudpickle.dumps(value)).decode(), "repr": repr(value)[:200]}


def class_name(cls: type) -> str:
    """Returns ``module:qualname``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _reachable(cls: type) -> bool:
    try:
        return issubclass(cls, _KINDS) and resolve_name(class_name(cls)) is cls
    except (ImportError, AttributeError, ValueError):  # defined in a function, or unpickled from another program
        return False


def _encode_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}


def _encode_noise(noise: ActionNoise) -> list[Any] | None:
    if type(noise) is NormalActionNoise:
        return ["normal", {"mean": encode(noise._mu), "sigma": encode(noise._sigma), "dtype": _name(noise._dtype)}]
    if type(noise) is OrnsteinUhlenbeckActionNoise:
        config = {"mean": noise._mu, "sigma": noise._sigma, "theta": noise._theta, "dt": noise._dt}
        config |= {"initial_noise": noise.initial_noise, "noise_prev": noise.noise_prev, "dtype": _name(noise._dtype)}
        return ["ornstein-uhlenbeck", {key: encode(v) for key, v in config.items()}]
    if type(noise) is VectorizedActionNoise and (base := _encode_noise(noise.base_noise)) is not None:
        return ["vectorized", {"base": base, "n_envs": noise.n_envs}]
    return None


def _name(dtype: Any) -> str:
    return np.dtype(dtype).str


# -- reading -----------------------------------------------------------------------------------------------------------


def decode(value: Any, trust: bool = False) -> Any:
    """Inverts :func:`encode`.

    A value that would run code becomes an :class:`Untrusted` placeholder, unless ``trust`` is set.

    Raises:
        UntrustedError: a class is not of a kind that options may hold, or not from a module already imported.
        ValueError: the data are not a result of :func:`encode`, or need a missing class.
    """
    if isinstance(value, list):
        return [decode(item, trust) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: decode(item, trust) for key, item in value.items()}
    body = value[tag]
    if tag == "$pickle":
        return _unpickled(body, value.get("repr")) if trust else Untrusted(str(value.get("repr", "?")))
    if tag == "$class":
        return find_class(body, trust)
    if tag == "$enum":
        return _member(find_class(body[0], trust), body[1])
    readers = {
        "$tuple": lambda: tuple(decode(item, trust) for item in body),
        "$dict": lambda: {decode(key, trust): decode(item, trust) for key, item in body},
        "$float": lambda: float(body),
        "$array": lambda: decode_array(value),
        "$scalar": lambda: decode_array({"$array": body})[()],
        "$space": lambda: decode_space(body),
        "$schedule": lambda: schedule_from_json(body),
        "$noise": lambda: _decode_noise(body),
    }
    if tag not in readers:
        raise ValueError(f"unknown tag {tag!r}: the file is damaged or from a newer polyak.")
    return readers[tag]()


def _member(kind: type, name: Any) -> enum.Enum:
    """Returns the member of an enum; ValueError if `kind` is no enum, or has no such member: no other attribute is
    read."""
    members = kind.__members__ if issubclass(kind, enum.Enum) else {}
    if not isinstance(name, str) or name not in members:
        raise ValueError(f"the file names {name!r:.100} of {class_name(kind)}, which is not a member of an enum.")
    return members[name]


def _unpickled(body: str, described: Any) -> Any:
    try:
        return cloudpickle.loads(base64.b64decode(body))
    except (ImportError, AttributeError) as error:
        raise ValueError(_missing(f"what it describes as {described!s:.200}", error)) from error


def _missing(what: str, why: Any) -> str:
    return (
        f"the file needs {what}, which is not there in this program ({why}). Import or define it here under that name, "
        "or pass another value through custom_objects={...}, such as 'policy_class' or 'policy_kwargs'."
    )


def _present(module_name: str) -> str:
    """Returns the present module of a class that a file names in a former one."""
    if module_name in MODULES_MOVED:
        return MODULES_MOVED[module_name]
    rooms = ((old, new) for old, new in ROOMS_MOVED.items() if module_name.startswith(old))
    old, new = next(rooms, ("", ""))
    found = new + module_name.removeprefix(old)
    return MODULES_MOVED.get(found, found)  # a module of a moved package may have moved again


def find_class(name: str, trust: bool = False) -> type:
    """Returns the class called ``module:qualname``.

    Raises:
        UntrustedError: options may not hold its kind, or its module is not imported yet and is neither polyak's nor
            torch's.
        ValueError: there is no such class.
    """
    module_name, _, qualname = name.partition(":")
    module_name = _present(module_name)
    if trust or is_ours(module_name):
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ValueError(_missing(f"the class {name!r}", error)) from error
    elif module_name in sys.modules:
        module = sys.modules[module_name]
    else:
        raise UntrustedError(
            f"the file names the class {name!r}, whose module is not imported. Import {module_name!r} first, or pass "
            "trust=True if you trust the file."
        )
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None) if trust else vars(found).get(part) if hasattr(found, "__dict__") else None
    if found is None:
        defined_by = "the program that saved the model" if module_name == "__main__" else "its module as it was then"
        raise (ValueError if trust else UntrustedError)(_missing(f"the class {name!r}", f"{defined_by} defined it"))
    if not isinstance(found, type) or not (trust or issubclass(found, _KINDS)):
        way_out = "" if trust else " Pass trust=True only if you trust the file."
        raise UntrustedError(f"the file names {name!r}, which is not a class of a kind that options may hold.{way_out}")
    return found


def holds_untrusted(value: Any) -> bool:
    """Whether ``value`` contains a placeholder of :func:`decode`."""
    if isinstance(value, dict):
        return any(holds_untrusted(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_untrusted(item) for item in value)
    return isinstance(value, Untrusted)


def is_plain(value: Any) -> bool:
    """Whether a file can hold a value so that it is read without trust."""
    try:
        return not holds_untrusted(decode(encode(value)))
    except Exception:  # pickling raises almost anything
        return False


def warn_untrusted(values: dict[str, Any]) -> dict[str, Any]:
    """Returns ``values`` without those that contain placeholders, after one warning that names the omitted ones."""
    left_out = {key: item for key, item in values.items() if holds_untrusted(item)}
    if left_out:
        warn_user(
            f"not loaded, because they hold pickled code: {left_out}. Defaults are used instead. Pass them through "
            "custom_objects={...}, or pass trust=True if you trust the file.",
            UserWarning,
        )
    return {key: item for key, item in values.items() if key not in left_out}


def _decode_noise(body: list[Any]) -> ActionNoise:
    kind, config = body
    if kind == "normal":
        return NormalActionNoise(decode(config["mean"]), decode(config["sigma"]), np.dtype(config["dtype"]))
    if kind == "ornstein-uhlenbeck":
        values = {key: decode(item) for key, item in config.items()}
        last = values.pop("noise_prev")
        noise = OrnsteinUhlenbeckActionNoise(**values | {"dtype": np.dtype(values["dtype"])})
        noise.noise_prev = last
        return noise
    if kind == "vectorized":
        return vectorized_noise(_decode_noise(config["base"]), config["n_envs"])
    raise ValueError(f"unknown action noise {kind!r}: the file is damaged or from a newer polyak.")


def vectorized_noise(base: ActionNoise, n_envs: int) -> VectorizedActionNoise:
    """Returns noise for several environments, as a file describes it.

    Raises:
        ValueError: it would take far more memory than the file.
    """
    size = n_envs * sum(value.size for value in vars(base).values() if isinstance(value, np.ndarray))
    if size > MOST_NUMBERS:
        raise ValueError(f"the file describes action noise of {size:,} numbers: at most {MOST_NUMBERS:,} are read.")
    return VectorizedActionNoise(base, n_envs)
