"""The records that :mod:`.unpickle` reads, as arrays, spaces, schedules, noise ...

Everything is checked before it is made: sizes against the bytes that are there, numbers for being numbers.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from polyak.checkpoint.serialise import UntrustedError, find_class, vectorized_noise
from polyak.collecting.train_freq import TrainFreq, TrainFrequencyUnit
from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.closures import schedule_of
from polyak.compat.sb3_face.files.names import Name
from polyak.compat.sb3_face.files.records import Record, Sealed
from polyak.envs.space_json import check_choices, check_space
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.experience import GoalSelectionStrategy
from polyak.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule

MAX_DEPTH = 64
Order = Literal["C", "F"]
"""The order of the entries of an array."""
_LARGEST = 2**128
"""Bound of whole numbers: the states of random generators have 128 bits."""
_MAX_REPEATS = 8
"""An honest pickle hardly ever refers to a container twice, so its values are not much longer than the pickle."""
_PLAIN_DTYPE = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248]|c(8|16)|[US]\d{1,4})")


@dataclass(frozen=True)
class SavedObject:
    """A pickled object that is more than a value: its class in the peer, and its attributes."""

    name: Name
    state: dict[str, Any]


def translate(value: Any, size: int) -> Any:
    """Returns the values that the records of one pickle describe.

    Args:
        value: the records.
        size: length of the pickle in bytes, which bounds the size of the value.

    Raises:
        ValueError: a record does not have the parts that the peer writes, or the value is absurdly large or deep.
        UntrustedError: a function, or another object that cannot be made without running the pickle.
    """
    return _Translator(_MAX_REPEATS * size + 1000)(value)


class _Translator:
    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.depth = 0

    def __call__(self, value: Any) -> Any:
        self.budget -= 1
        if self.budget < 0 or self.depth > MAX_DEPTH:
            raise ValueError("this pickle unfolds to more than an honest file of its size can hold.")
        if isinstance(value, Sealed):
            return class_of(value.origin)
        if not isinstance(value, (list, tuple, dict, set, frozenset, Record)):
            return value
        self.depth += 1
        try:
            return self._compound(value)
        finally:
            self.depth -= 1

    def _compound(self, value: Any) -> Any:
        if isinstance(value, Record):
            return self._record(value)
        if isinstance(value, dict):
            return {self(key): self(item) for key, item in value.items()}
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(self(item) for item in value)
        return value  # a named tuple or the like: only a trusted pickle makes one

    def _record(self, record: Record) -> Any:
        reader = _READERS.get(record.origin)
        if reader is None:
            raise UntrustedError(
                f"the file holds an object made by {'.'.join(record.origin)}, which is not among what is made from "
                "files that are not trusted. Pass trust=True only if you trust the file."
            )
        return reader(record, self)


def class_of(name: Name) -> Any:
    """Returns the class that a file names: a :class:`~.names.PolicyName` for the peers' policies, otherwise the class
    itself.

    Raises:
        UntrustedError: it is not one that options may hold.
    """
    if name in names.POLICIES:
        return names.POLICIES[name]
    if name in names.CLASSES:
        return resolve_name(names.CLASSES[name])
    if name in names.CONTRIB_BUFFERS:
        return None
    if name in names.READABLE:
        raise UntrustedError(f"the file names {'.'.join(name)} itself where a value is expected. It may be damaged.")
    return find_class(":".join(name))


def attributes(record: Record, *required: str) -> dict[str, Any]:
    """Returns the attributes that an object was saved with.

    Raises:
        ValueError: some are missing; the message names them.
    """
    state = record.state
    if isinstance(state, tuple) and len(state) == 2:  # __dict__ and __slots__
        state = state[0]
    if not isinstance(state, dict):
        raise ValueError(f"the file's {record.origin[1]} has no attributes: it is damaged.")
    if missing := [name for name in required if name not in state]:
        raise ValueError(f"the file's {record.origin[1]} lacks {missing}: it is damaged.")
    return state


def number(value: Any, what: str) -> float:
    """Returns a finite real number as a ``float``.

    Raises:
        ValueError: it is not one.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"the file's {what} is {value!r:.80}, not a number: it is damaged.")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"the file's {what} has {value.bit_length()} bits: it is damaged.")
    if not math.isfinite(value):
        raise ValueError(f"the file's {what} is {value}: it is damaged.")
    return float(value)


def whole(value: Any, what: str, least: int = 0) -> int:
    """Returns a whole number of at least ``least``.

    Raises:
        ValueError: it is not one.
    """
    found = number(value, what)
    if found != int(found) or found < least:
        raise ValueError(f"the file's {what} is {value!r:.80}, not a whole number of at least {least}: it is damaged.")
    return int(found)


def numeric(value: Any, what: str) -> np.ndarray:
    """Returns an array of real numbers, float64.

    Raises:
        ValueError: it is not one.
    """
    array = value if isinstance(value, np.ndarray) else np.asarray(number(value, what))
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the file's {what} is an array of {array.dtype}, not of numbers: it is damaged.")
    return np.array(array, np.float64)


# -- numpy -------------------------------------------------------------------------------------------------------------


def _dtype(record: Record, read: _Translator) -> np.dtype:
    code = record.args[0] if record.args else None
    if code == "O8":
        return np.dtype(object)
    if not isinstance(code, str) or not _PLAIN_DTYPE.fullmatch(code):
        raise ValueError(f"the file has an array of dtype {code!r:.80}, which is not read.")
    state = record.state if isinstance(record.state, tuple) else (3, "=")
    return np.dtype(code).newbyteorder(">" if state[1:2] == (">",) else "=")


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, int):
        value = (value,)
    if not isinstance(value, tuple) or len(value) > 32 or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"the file has an array of shape {value!r:.80}: it is damaged.")
    return value


def _array(shape: Any, dtype: Any, data: Any, order: Order, read: _Translator) -> np.ndarray:
    """Returns an array over the pickle's own bytes: read-only, nothing copied."""
    shape, dtype = _shape(shape), read(dtype)
    if not isinstance(dtype, np.dtype):
        raise ValueError("the file has an array without a dtype: it is damaged.")
    if dtype.hasobject:
        return _object_array(shape, data, order, read)
    held = len(data) if isinstance(data, bytes | bytearray) else -1
    if math.prod(shape) * dtype.itemsize != held:
        raise ValueError(f"the file has an array {dtype}{list(shape)} with {held} bytes: it is damaged.")
    array = np.frombuffer(data, dtype).reshape(shape, order=order)
    array.flags.writeable = False
    return array


def _object_array(shape: tuple[int, ...], data: Any, order: Order, read: _Translator) -> np.ndarray:
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise ValueError(f"the file has an array of objects {list(shape)} that are not there: it is damaged.")
    array = np.empty(len(data), object)
    for i, item in enumerate(data):
        array[i] = read(item)
    return array.reshape(shape, order=order)


def _reconstructed(record: Record, read: _Translator) -> np.ndarray:
    state = record.state
    if not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("the file has an array without contents: it is damaged.")
    _, shape, dtype, fortran, data = state
    return _array(shape, dtype, data, "F" if fortran else "C", read)


def _from_buffer(record: Record, read: _Translator) -> np.ndarray:
    if len(record.args) != 4 or record.args[3] not in ("C", "F"):
        raise ValueError("the file has an array without contents: it is damaged.")
    data, dtype, shape, order = record.args
    return _array(shape, dtype, data, order, read)


def _scalar(record: Record, read: _Translator) -> Any:
    if len(record.args) != 2 or not isinstance(record.args[1], bytes):
        raise ValueError("the file has a number without contents: it is damaged.")
    return _array((), record.args[0], record.args[1], "C", read)[()]


# -- containers and spaces ---------------------------------------------------------------------------------------------


def _deque(record: Record, read: _Translator) -> deque[Any]:
    items, maxlen = record.args if len(record.args) == 2 else ((), None)
    if maxlen is not None:
        maxlen = whole(maxlen, "deque's length")
    return deque(read([*items, *record.items]), maxlen)


def _ordered_dict(record: Record, read: _Translator) -> dict[Any, Any]:
    pairs = [tuple(pair) for pair in (record.args[0] if record.args else ())] + record.pairs
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("the file has a dict whose entries are not pairs: it is damaged.")
    return {read(key): read(value) for key, value in pairs}


def _nothing(record: Record, read: _Translator) -> None:
    return None


def _space(record: Record, read: _Translator) -> spaces.Space:
    """Returns a space without its random generator."""
    kind = names.SPACES[record.origin]
    space = _SPACE_READERS[kind](attributes(record), read)
    check_space(space)
    return space


def _box(state: Mapping[str, Any], read: _Translator) -> spaces.Box:
    low, high, dtype = (read(state.get(name)) for name in ("low", "high", "dtype"))
    if not isinstance(low, np.ndarray) or not isinstance(high, np.ndarray) or low.shape != high.shape:
        raise ValueError("the file's Box has bounds of different shapes: it is damaged.")
    dtype = low.dtype if dtype is None else np.dtype(dtype)
    if dtype.kind not in "biuf" or low.dtype.kind not in "biuf" or np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("the file's Box has bounds that are not numbers: it is damaged.")
    return spaces.Box(low, high, dtype=dtype.type)


def _discrete(state: Mapping[str, Any], read: _Translator) -> spaces.Discrete:
    start = read(state.get("start", 0))
    return spaces.Discrete(whole(read(state.get("n")), "Discrete.n", 1), start=int(number(start, "Discrete.start")))


def _multi_discrete(state: Mapping[str, Any], read: _Translator) -> spaces.MultiDiscrete:
    sizes = numeric(read(state.get("nvec")), "MultiDiscrete.nvec")
    check_choices(sizes.size)
    if not sizes.size or not (sizes >= 1).all() or not np.isfinite(sizes).all():
        raise ValueError("the file's MultiDiscrete.nvec has entries that are not sizes: it is damaged.")
    start = read(state.get("start"))
    first = None if start is None else numeric(start, "MultiDiscrete.start").astype(np.int64)
    return spaces.MultiDiscrete(sizes.astype(np.int64), start=first)


def _multi_binary(state: Mapping[str, Any], read: _Translator) -> spaces.MultiBinary:
    n = read(state.get("n"))
    if isinstance(n, (tuple, list, np.ndarray)) and np.ndim(n):
        return spaces.MultiBinary([whole(entry, "MultiBinary.n", 1) for entry in n])
    return spaces.MultiBinary(whole(n, "MultiBinary.n", 1))


def _dict_space(state: Mapping[str, Any], read: _Translator) -> spaces.Dict:
    parts = read(state.get("spaces"))
    if not isinstance(parts, dict) or not all(isinstance(part, spaces.Space) for part in parts.values()):
        raise ValueError("the file's Dict space has entries that are not spaces: it is damaged.")
    return spaces.Dict(parts)


def _tuple_space(state: Mapping[str, Any], read: _Translator) -> spaces.Tuple:
    parts = read(state.get("spaces"))
    if not isinstance(parts, (tuple, list)) or not all(isinstance(part, spaces.Space) for part in parts):
        raise ValueError("the file's Tuple space has entries that are not spaces: it is damaged.")
    return spaces.Tuple(parts)


_SPACE_READERS: dict[str, Callable[[Mapping[str, Any], _Translator], spaces.Space]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
    "Dict": _dict_space,
    "Tuple": _tuple_space,
}


# -- values of hyper-parameters ----------------------------------------------------------------------------------------


def _device(record: Record, read: _Translator) -> str:
    return str(record.args[0]) if record.args else "cpu"


def _float_schedule(record: Record, read: _Translator) -> FloatSchedule:
    return FloatSchedule(read(attributes(record, "value_schedule")["value_schedule"]))


def _constant_schedule(record: Record, read: _Translator) -> ConstantSchedule:
    return ConstantSchedule(number(read(attributes(record, "val")["val"]), "constant schedule"))


def _linear_schedule(record: Record, read: _Translator) -> LinearSchedule:
    state = read(dict(attributes(record, "start", "end", "end_fraction")))
    return LinearSchedule(*(number(state[name], f"schedule's {name}") for name in ("start", "end", "end_fraction")))


def _zoo_schedule(record: Record, read: _Translator) -> LinearSchedule:
    state = read(dict(attributes(record, "initial_value")))
    return LinearSchedule(number(state["initial_value"], "schedule's initial_value"), 0.0, 1.0)


def _function(record: Record, read: _Translator) -> Any:
    schedule = schedule_of(record, read)
    if schedule is None:
        raise UntrustedError(
            "the file holds the code of a function (cloudpickle.cloudpickle._make_function), which would have to be "
            "run. Pass trust=True only if you trust the file."
        )
    return schedule


def _called(record: Record, read: _Translator) -> Any:
    """Returns an object of a class that was itself looked up by a call, as older cloudpickles write functions."""
    maker = record.maker
    if maker is None or maker.origin not in names.BUILTIN_TYPE or maker.args not in names.FUNCTION_TYPES:
        raise UntrustedError(
            f"the file holds an object made by {maker.args if maker else 'nothing'}, which is not made from files that "
            "are not trusted. Pass trust=True only if you trust the file."
        )
    return _function(record, read)


def _train_freq(record: Record, read: _Translator) -> TrainFreq:
    if len(record.args) != 2:
        raise ValueError("the file's train_freq is not a number and a unit: it is damaged.")
    frequency, unit = read(record.args)
    return TrainFreq(whole(frequency, "train_freq", 1), TrainFrequencyUnit(unit))


def _train_unit(record: Record, read: _Translator) -> TrainFrequencyUnit:
    return TrainFrequencyUnit(*record.args)


def _goal_strategy(record: Record, read: _Translator) -> GoalSelectionStrategy:
    return GoalSelectionStrategy(*record.args)


def _normal_noise(record: Record, read: _Translator) -> NormalActionNoise:
    state = read(dict(attributes(record, "_mu", "_sigma")))
    mean, sigma = numeric(state["_mu"], "action noise"), numeric(state["_sigma"], "action noise")
    return NormalActionNoise(mean, sigma, _noise_dtype(state))


def _ou_noise(record: Record, read: _Translator) -> OrnsteinUhlenbeckActionNoise:
    state = read(dict(attributes(record, "_mu", "_sigma", "_theta", "_dt")))
    mean, sigma = numeric(state["_mu"], "action noise"), numeric(state["_sigma"], "action noise")
    theta, dt = number(state["_theta"], "action noise's theta"), number(state["_dt"], "action noise's dt")
    start = state.get("initial_noise")
    start = None if start is None else numeric(start, "action noise")
    noise = OrnsteinUhlenbeckActionNoise(mean, sigma, theta, dt, start, _noise_dtype(state))
    if (last := state.get("noise_prev")) is not None:
        noise.noise_prev = numeric(last, "action noise").reshape(noise.noise_prev.shape)
    return noise


def _noise_dtype(state: Mapping[str, Any]) -> Any:
    return np.dtype(state.get("_dtype") or np.float32).type


def _vectorized_noise(record: Record, read: _Translator) -> VectorizedActionNoise:
    state = attributes(record)
    base = read(state.get("_base_noise", state.get("base_noise")))
    copies = read(state.get("_noises", state.get("noises", ())))
    if not isinstance(base, ActionNoise) or not isinstance(copies, list):
        raise ValueError("the file's action noise has no base: it is damaged.")
    noise = vectorized_noise(base, whole(state.get("n_envs", len(copies)), "action noise's n_envs", 1))
    if len(copies) == noise.n_envs:
        noise.noises = copies
    return noise


def _running(record: Record, read: _Translator) -> RunningMeanStd:
    state = read(dict(attributes(record, "mean", "var", "count")))
    mean, var = numeric(state["mean"], "mean"), numeric(state["var"], "variance")
    if mean.shape != var.shape:
        raise ValueError(f"the file's statistics have a mean {mean.shape} and a variance {var.shape}: it is damaged.")
    return RunningMeanStd.from_state_dict({"mean": mean, "var": var, "count": number(state["count"], "count")})


def _object(record: Record, read: _Translator) -> SavedObject:
    return SavedObject(record.origin, read(dict(attributes(record))))


_READERS: dict[Name, Callable[[Record, _Translator], Any]] = {
    Record.origin: _called,
    names.DTYPE: _dtype,
    **dict.fromkeys(names.RECONSTRUCT, _reconstructed),
    **dict.fromkeys(names.FROM_BUFFER, _from_buffer),
    **dict.fromkeys(names.SCALAR, _scalar),
    names.DEQUE: _deque,
    names.ORDERED_DICT: _ordered_dict,
    **dict.fromkeys(names.RANDOM, _nothing),
    **dict.fromkeys(names.SPACES, _space),
    names.DEVICE: _device,
    names.FLOAT_SCHEDULE: _float_schedule,
    names.CONSTANT_SCHEDULE: _constant_schedule,
    names.LINEAR_SCHEDULE: _linear_schedule,
    names.ZOO_SCHEDULE: _zoo_schedule,
    **dict.fromkeys(names.MAKE_FUNCTION, _function),
    names.TRAIN_FREQ: _train_freq,
    names.TRAIN_UNIT: _train_unit,
    names.GOAL_STRATEGY: _goal_strategy,
    names.NORMAL_NOISE: _normal_noise,
    names.OU_NOISE: _ou_noise,
    names.VECTORIZED_NOISE: _vectorized_noise,
    names.RUNNING_MEAN_STD: _running,
    names.VEC_NORMALIZE: _object,
    **dict.fromkeys(names.REPLAY_BUFFERS, _object),
}
