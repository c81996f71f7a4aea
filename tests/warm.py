"""Programs under ``polyak run`` that do not each wait for torch to be imported: forks of a Python that has done so.

That Python was started by ``polyak run`` as any program is, but has imported torch and polyak, and none of the names
that polyak answers. Each program is the ``__main__`` of a fork, with its own arguments, folder and ends of the streams.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = [sys.executable, "-m", "polyak", "run"]
ENVIRON = {"OMP_NUM_THREADS": "1"}


def run_program(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``polyak run`` makes of a program and its arguments, started in ``folder``."""
    if not hasattr(os, "fork"):
        env = os.environ | ENVIRON
        return subprocess.run([*RUN, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    with tempfile.TemporaryDirectory() as kept:
        streams = [Path(kept, name) for name in ("out", "err")]
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        job = {"words": words, "folder": str(folder), "streams": [str(path) for path in streams]}
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, *(path.read_text() for path in streams))


@functools.lru_cache(maxsize=1)
def _server() -> "subprocess.Popen[str]":
    """One for all tests of this process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([*RUN, __file__], text=True, env=os.environ | ENVIRON, **pipes)
    atexit.register(server.communicate)  # it ends with its input
    return server


def serve() -> None:
    """Fork for each line of the input, and answer with the exit status of the fork."""
    import runpy
    import signal

    import torch._dynamo  # building the first optimizer would import it

    import polyak

    for name in polyak.__all__:
        getattr(polyak, name)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
            continue
        answers.close()
        for number, path in enumerate((os.devnull, *job["streams"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        signal.alarm(600)
        os.chdir(job["folder"])
        sys.argv, sys.path[0] = job["words"], str(Path(job["words"][0]).resolve().parent)
        runpy.run_path(job["words"][0], run_name="__main__")
        return


if __name__ == "__main__":
    serve()
