"""Python programs that do not each wait for torch to be imported: forks of a Python that has done so.

That Python has imported torch, its compiler and gymnasium, and nothing of polyak. Each program is the ``__main__`` of a
fork, with its own arguments, folder, environment, ``sys.path`` and ends of the streams. Where a program is replaced by
another of the same Python, as ``polyak run`` does, the fork begins anew with that one. Tests of options of the
interpreter, of its end, or of what is imported of those three start a Python of their own.
"""

import atexit
import contextlib
import functools
import gc
import json
import multiprocessing.process
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

RUN = ["-m", "polyak", "run"]
ENVIRON = {"OMP_NUM_THREADS": "1"}
SECONDS = 600


def python(
    words: Sequence[object], folder: str | Path = ".", env: Mapping[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """What becomes of ``python WORDS``, started in ``folder``; the words begin with ``-c``, ``-m`` or a script."""
    return _run({"words": [str(word) for word in words], "ready": False}, folder, env, check)


def run_program(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``polyak run`` makes of a program and its arguments. The program finds all of polyak imported."""
    return _run({"words": [*RUN, *words], "ready": True}, folder, None, False)


def _run(
    job: dict[str, Any], folder: str | Path, env: Mapping[str, str] | None, check: bool
) -> subprocess.CompletedProcess[str]:
    job |= {"folder": os.path.abspath(folder), "env": {**(os.environ if env is None else env), **ENVIRON}}
    command = [sys.executable, *job["words"]]
    if not hasattr(os, "fork"):
        options = {"cwd": folder, "capture_output": True, "text": True, "timeout": SECONDS, "check": check}
        return subprocess.run(command, env=job["env"], **options)
    with tempfile.TemporaryDirectory() as kept:
        streams = [Path(kept, name) for name in ("out", "err")]
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(job | {"streams": [str(path) for path in streams]}) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        done = subprocess.CompletedProcess(command, code, *(path.read_text() for path in streams))
    if check and code:
        raise AssertionError(f"{job['words']} ended with {code}: {done.stderr[-4000:]}")
    return done


@functools.lru_cache(maxsize=1)
def _server() -> "subprocess.Popen[str]":
    """One for all tests of this process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen([sys.executable, __file__], text=True, env=env | ENVIRON, **pipes)
    atexit.register(server.communicate)  # it ends with its input
    return server


# -- in the other process ----------------------------------------------------------------------------------------------


class _Replaced(BaseException):
    """By another program, whose words and environment these are."""


def _execve(path: str, words: Sequence[str], env: Mapping[str, str]) -> None:
    assert path == sys.executable
    raise _Replaced([word for word in words[1:] if word != "-B"], dict(env))  # which the environment may ask for


def serve() -> None:
    """Import what takes long, then answer jobs."""
    import gymnasium.envs
    import torch._dynamo  # building the first optimizer would import it

    torch.set_num_threads(1)
    assert gymnasium.envs
    assert not any(name.partition(".")[0] == "polyak" for name in sys.modules)
    _answer(sys.stdin, os.fdopen(os.dup(1), "w"), None)


def _answer(jobs: Any, answers: Any, prepared: "bool | None") -> None:
    """Fork for each line of ``jobs``, and answer with the exit status of the fork.

    Jobs that are to find polyak imported go to a fork that has imported it, once there is one.
    """
    gc.collect()
    gc.freeze()
    ready: Any = None
    for line in jobs:
        job = json.loads(line)
        if job["ready"] and not prepared:
            if ready is None:
                (their_jobs, our_jobs), (our_answers, their_answers) = os.pipe(), os.pipe()
                if not os.fork():
                    os.close(our_jobs), os.close(our_answers)
                    answers.close()
                    _prepare(job)
                    return _answer(os.fdopen(their_jobs), os.fdopen(their_answers, "w"), True)
                os.close(their_jobs), os.close(their_answers)
                ready = os.fdopen(our_jobs, "w"), os.fdopen(our_answers)
            print(line.strip(), file=ready[0], flush=True)
            print(ready[1].readline().strip(), file=answers, flush=True)
        elif child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
        else:
            answers.close()
            for number, path in enumerate((os.devnull, *job["streams"])):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
            signal.alarm(SECONDS)
            os.chdir(job["folder"])
            multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # where workers look for the program
            _begin(*((job["words"][len(RUN) :], None) if prepared else (job["words"], job["env"])))
    if ready is not None:
        ready[0].close()
        os.wait()


def _prepare(job: dict[str, Any]) -> None:
    """Be a Python under ``polyak run`` that has imported all of polyak, and none of the names that polyak answers."""
    root = str(Path(__file__).parents[1])
    _environment(job["env"] | {"PYTHONPATH": root})
    import polyak
    from polyak.compat.run import environment

    for name in polyak.__all__:
        getattr(polyak, name)
    _environment(environment(os.environ))


def _begin(words: list[str], env: "Mapping[str, str] | None") -> NoReturn:
    """Be ``python WORDS``, and end without taking apart what the fork has in common with its parent."""
    code: Any = 0
    try:
        if env is not None:
            _environment(env)
        os.execve = _execve  # type: ignore[assignment]
        _program(words)
    except _Replaced as replaced:
        for name in [name for name in sys.modules if name.partition(".")[0] == "polyak"]:
            del sys.modules[name]
        _begin(*replaced.args)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        code, trace = 1, error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)


def _environment(env: Mapping[str, str]) -> None:
    """What Python makes of its environment when it starts."""
    os.environ.clear()
    os.environ.update(env)
    given = [os.path.abspath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = ["", *given, *_installed()]
    for option in filter(None, env.get("PYTHONWARNINGS", "").split(",")):
        warnings._processoptions([option])  # type: ignore[attr-defined]
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        __import__("sitecustomize")


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    """The standard library and the packages."""
    return tuple(sys.path[1:])


def _program(words: list[str]) -> None:
    """Run a program as ``__main__``."""
    first, *rest = words
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.argv, sys.path[0] = words, str(Path(first).resolve().parent)
        vars(main)["__file__"] = first
        exec(compile(Path(first).read_bytes(), first, "exec"), vars(main))


if __name__ == "__main__":
    serve()
