"""Pickles that do harm when they are run, written opcode by opcode."""

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import torch

MARK = "MARK"
"""Stands for a file that the payload tries to make."""


def text(value: str) -> bytes:
    """The opcode that pushes a string."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def call(module: str, name: str, *arguments: str) -> bytes:
    """``module.name(*arguments)``, as protocol 0 writes it."""
    return f"c{module}\n{name}\n(".encode() + b"".join(b"V" + a.encode() + b"\n" for a in arguments) + b"tR."


def stacked(module: str, name: str, *arguments: str) -> bytes:
    """The same by protocol 4, whose names may have dots in them."""
    return b"\x80\x04" + text(module) + text(name) + b"\x93(" + b"".join(text(a) for a in arguments) + b"tR."


def _evil(function: Callable[..., Any], *arguments: Any) -> Any:
    class Evil:
        def __reduce__(self) -> Any:
            return function, arguments

    return Evil()


def _object_array(mark: str) -> bytes:
    import os

    array = np.empty(1, object)
    array[0] = _evil(os.system, f"touch {mark}")
    return pickle.dumps(array)


def _tensor_in_a_pickle(mark: str) -> bytes:
    """torch pickles a tensor as bytes that it gives to ``torch.load``, which runs what is in them."""
    import os

    inner = io.BytesIO()
    torch.save(_evil(os.system, f"touch {mark}"), inner)
    outer = b"\x80\x04" + text("torch.storage") + text("_load_from_bytes") + b"\x93"
    return outer + b"\x8e" + struct.pack("<Q", len(inner.getvalue())) + inner.getvalue() + b"\x85R."


def _function(mark: str) -> bytes:
    def attack(left: float) -> float:
        import os

        os.system(f"touch {mark}")
        return left

    return cloudpickle.dumps(attack)


def _class_by_value(mark: str) -> bytes:
    class Attack:
        def __setstate__(self, state: Any) -> None:
            import os

            os.system(f"touch {mark}")

    Attack.__module__ = "__main__"
    attack = Attack()
    attack.x = 1  # type: ignore[attr-defined]
    return cloudpickle.dumps(attack)


def _laughs() -> bytes:
    """Thirty lists, each of which holds the one before ten times."""
    opcodes = b"\x80\x04]\x94" + text("lol") + b"a"
    for index in range(30):
        opcodes += b"](" + b"h" * 0 + b"".join(b"h" + bytes([index]) for _ in range(10)) + b"e\x94"
    return opcodes + b"."


def payloads(mark: str) -> dict[str, bytes]:
    """By name."""
    touch = f"touch {mark}"
    write = f"open({mark!r}, 'w').close()"
    plain = {
        "os.system": call("os", "system", touch),
        "posix.system": call("posix", "system", touch),
        "nt.system": call("nt", "system", touch),
        "os.mkdir": call("os", "mkdir", mark),
        "os.popen": call("os", "popen", touch),
        "subprocess.check_output": call("subprocess", "getoutput", touch),
        "builtins.eval": call("builtins", "eval", write),
        "__builtin__.eval": call("__builtin__", "eval", write),
        "builtins.exec": call("builtins", "exec", write),
        "builtins.open": call("builtins", "open", mark, "w"),
        "builtins.__import__": call("builtins", "__import__", "antigravity"),
        "builtins.getattr": call("builtins", "getattr", "os", "system"),
        "builtins.compile": call("builtins", "compile", write, "x", "exec"),
        "shutil.rmtree": call("shutil", "rmtree", mark),
        "shutil.copy": call("shutil", "copy", "/etc/hostname", mark),
        "sys.exit": call("sys", "exit", "0"),
        "importlib.import_module": call("importlib", "import_module", "antigravity"),
        "runpy.run_module": call("runpy", "run_module", "antigravity"),
        "webbrowser.open": call("webbrowser", "open", "http://localhost"),
        "pty.spawn": call("pty", "spawn", touch),
        "timeit.timeit": call("timeit", "timeit", write),
        "cProfile.run": call("cProfile", "run", write),
        "code.InteractiveInterpreter": call("code", "InteractiveInterpreter"),
        "ctypes.CDLL": call("ctypes", "CDLL", "libc.so.6"),
        "socket.create_connection": call("socket", "create_connection", "localhost"),
        "pathlib.Path": call("pathlib", "Path", mark),
        "functools.partial": call("functools", "partial", "x"),
        "operator.attrgetter": call("operator", "attrgetter", "system"),
        "operator.methodcaller": call("operator", "methodcaller", "system", touch),
        "copyreg.add_extension": call("copyreg", "add_extension", "os", "system", "240"),
        "pickle.loads": call("pickle", "loads", "cos\nsystem\n(Vid\ntR."),
        "cloudpickle.loads": call("cloudpickle", "loads", "x"),
        "torch.load": call("torch", "load", mark),
        "numpy.load": call("numpy", "load", mark),
        "numpy.f2py": call("numpy.testing._private.utils", "runstring", write, "{}"),
        "a module not imported": call("antigravity", "geohash"),
        "an instance by INST": b"(V" + touch.encode() + b"\nios\nsystem\n.",
        "an instance by OBJ": b"(cos\nsystem\nV" + touch.encode() + b"\no.",
        "a persistent id": b"Pos.system\n.",
        "a binary persistent id": b"Vos.system\nQ.",
        "an extension code": b"\x80\x02\x82\xf0.",
        "a class by value": _class_by_value(mark),
        "a function by value": _function(mark),
        "an array of objects": _object_array(mark),
        "a tensor": _tensor_in_a_pickle(mark),
    }
    dotted = {
        "a dotted name": stacked("stable_baselines3.common.save_util", "os.system", touch),
        "a dotted name of numpy's": stacked("numpy", "dtype.__class__.__subclasses__"),
        "a dotted name of ours": stacked("polyak.checkpoint.serialise", "cloudpickle.loads", "x"),
        "a function of the peer": stacked("stable_baselines3.common.save_util", "load_from_pkl", mark),
        "a function of ours": stacked("polyak.compat.sb3_face.files.unpickle", "loads", "x"),
        "our command line": stacked("polyak.__main__", "main"),
    }
    return {**plain, **dotted, **_tricks(touch), **_damage()}


def _tricks(touch: str) -> dict[str, bytes]:
    box = b"\x80\x04" + text("gymnasium.spaces.box") + text("Box") + b"\x93"
    function = b"\x80\x04" + text("cloudpickle.cloudpickle") + text("_builtin_type") + b"\x93"
    code = function + text("CodeType") + b"\x85R)R."
    return {
        "attributes set on a class": box + b"N}" + text("__setstate__") + text("x") + b"s\x86b0" + box[2:] + b".",
        "attributes set on a function": function + b"}" + text("__code__") + text("x") + b"sb.",
        "an allowed class called": b"\x80\x04" + text("torch.nn.modules.activation") + text("ReLU") + b"\x93)R.",
        "an allowed name by itself": function + b".",
        "code by hand": code,
        "a builtin type": function + text("eval") + b"\x85R" + text(touch) + b"\x85R.",
        "a list that holds itself": b"\x80\x04]\x94h\x00a.",
    }


def _damage() -> dict[str, bytes]:
    names = text("numpy._core.numeric") + text("_frombuffer") + b"\x93"
    dtype = text("numpy") + text("dtype") + b"\x93" + text("f4") + b"\x89\x88\x87R"
    many = b"\x8a\x08" + struct.pack("<q", 2**40)
    return {
        "nothing": b"\x80",
        "no stop": b"\x80\x04N",
        "an empty stack": b"\x80\x04.",
        "an unknown opcode": b"\x80\x04\xfeN.",
        "a memo bomb": b"\x80\x04Nr\xff\xff\xff\x7f.",
        "a memo bomb by text": b"Np4000000000\n.",
        "a length that is not there": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
        "a frame that is not there": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
        "lists in lists": b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
        "a billion laughs": _laughs(),
        "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
        "an array that is not there": b"\x80\x04" + names + b"C\x00" + dtype + many + b"\x85" + text("C") + b"tR.",
    }
