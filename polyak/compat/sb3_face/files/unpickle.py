"""Reads a pickle without running it.

Names in a pickle are neither imported nor called: every name of :data:`.names.READABLE` becomes a class of records,
every object a record of the arguments and the state from which it would have been built. :mod:`.translate` then
converts the records by its own code. A name that is not on the list ends the reading.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from importlib import import_module
from typing import Any

from polyak.checkpoint.serialise import UntrustedError, find_class
from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.records import record_class
from polyak.compat.sb3_face.files.translate import translate

_REFUSED_OPCODES = {"PERSID", "BINPERSID", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}
"""Opcodes that no file of the peers has; all bypass ``find_class`` or refer to state outside the file."""
_PEERS = ("stable_baselines3", "sb3_contrib")


class _Untrusted(pickle.Unpickler):
    """Accepts the names on the list, and the caller's own classes that options may hold."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in names.READABLE:
            return record_class((module, name))
        if "." not in name and module.partition(".")[0] not in _PEERS:
            try:  # such as a features extractor; it is only named here, and translate() gives the class itself
                find_class(f"{module}:{name}")
                return record_class((module, name))
            except UntrustedError:
                pass
        raise UntrustedError(
            f"the file names {module}.{name}, which is not among what is read from files that are not trusted. Pass "
            "trust=True only if you trust the file: it can then run any code."
        )


class _Trusted(pickle.Unpickler):
    """Finds everything; the peers' names are answered by polyak's classes."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in names.REPLAY_BUFFERS or (module, name) in (names.VEC_NORMALIZE, names.RUNNING_MEAN_STD):
            return record_class((module, name))
        root, _, path = module.partition(".")
        if root == "gym" and (module, name) in names.SPACES | dict.fromkeys(names.RANDOM, ""):
            return record_class((module, name))
        if root in _PEERS:
            found: Any = import_module(f"polyak.compat.{'sb3' if root == _PEERS[0] else 'contrib'}.{path}".rstrip("."))
            for part in name.split("."):
                found = getattr(found, part)
            return found
        return super().find_class(module, name)


def loads(data: bytes, trust: bool = False) -> Any:
    """Returns the value of a pickle.

    Args:
        data: the pickle.
        trust: read pickles with other names by running them, as ``cloudpickle.loads`` does.

    Raises:
        UntrustedError: without ``trust``, the pickle has a name that is not on the list; the message contains it.
        ValueError: the pickle is damaged, or has content that no genuine file has.
    """
    try:
        return _translated(_read(data), len(data))
    except UntrustedError:
        if not trust:
            raise
    return _translated(_Trusted(io.BytesIO(data)).load(), len(data))


def _read(data: bytes) -> Any:
    try:
        _scan(data)
        return _Untrusted(io.BytesIO(data)).load()
    except UntrustedError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise ValueError(f"this is not a pickle, or it is damaged ({type(error).__name__}: {error}).") from error


def _translated(value: Any, size: int) -> Any:
    try:
        return translate(value, size)
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this pickle is damaged ({type(error).__name__}: {error}).") from error


def _scan(data: bytes) -> None:
    """Check the opcodes before they are executed: lengths must fit the data, memo numbers the number of opcodes."""
    for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if opcode.name in _REFUSED_OPCODES:
            raise UntrustedError(
                f"the file has the opcode {opcode.name} ({argument}) at byte {position}, which is not obeyed in files "
                "that are not trusted. Pass trust=True only if you trust the file."
            )
        if opcode.name.endswith("PUT") and int(argument or 0) > count:
            raise ValueError(f"{opcode.name} {argument} at byte {position} is beyond what the file can hold")
