"""Virtual environments for the peers, and runs in fresh processes inside them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from threading import Event, Thread
from typing import Any

HERE = Path(__file__).resolve().parent
VENVS = HERE / ".venvs"
TORCH = "torch==2.13.0"
ENVIRONMENTS = [
    "gymnasium==1.4.0",
    "mujoco==4.0.0",
    "imageio==2.38.1",
    "packaging==26.3",
    "ale-py==0.12.1",
    "opencv-python-headless==5.0.0.93",
]
SHOWN = ["tqdm", "rich", "tensorboard"]
"""What a progress bar and curves take."""
PEERS: dict[str, list[str]] = {
    "sb3": [TORCH, "stable-baselines3==2.9.2", "numpy==2.4.6", *ENVIRONMENTS],
    "contrib": [TORCH, "sb3-contrib==2.9.2", "stable-baselines3==2.9.2", "numpy==2.4.6", *ENVIRONMENTS, *SHOWN],
    "sbx": [TORCH, "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "numpy==2.4.6", *ENVIRONMENTS],
}
"""Pinned packages of each peer."""
ENGINES: dict[str, list[str]] = {"envpool": ["envpool==1.2.5", "gymnasium==1.4.0", "numpy==2.4.6"]}
"""The same for packages that only step environments."""
OFFLINE: dict[str, list[str]] = {
    "d3rlpy": [TORCH, "d3rlpy==2.8.1", "mujoco==4.0.0", "imageio==2.38.1"],
    "corl": [TORCH, "numpy==2.4.6"],
}
"""The same for those that learn from datasets."""
SEARCHES: dict[str, list[str]] = {"mctx": ["jax==0.10.2", "mctx==0.0.71"]}
"""The same for those that search."""
CLUSTERS: dict[str, list[str]] = {
    "rllib": [TORCH, "ray[rllib]==2.60.0", "numpy==2.4.6", "gymnasium==1.2.2", "pillow==13.0.0", "psutil==7.2.2"]
}
"""The same for those that learn on Ray."""
LIBRARIES = ("polyak", *PEERS)


class Beside:
    """Runs ``_run()``, until it is over, in a thread beside a ``with`` block.

    Attributes:
        over: set where the block ends; ``_run`` waits for it between two looks.
    """

    def __init__(self) -> None:
        self.over, self._thread = Event(), Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()


_running: set[subprocess.Popen[str]] = set()


def stop_workers_with_me() -> None:
    """Let a polite kill of this process end its workers too, those that threads wait for as well."""

    def stop(*_: Any) -> None:
        for worker in tuple(_running):
            worker.kill()
        sys.exit(143)

    signal.signal(signal.SIGTERM, stop)


class RunFailed(RuntimeError):
    """A worker ended without a result; the message carries the end of its output."""


def interpreter(library: str) -> Path:
    """The Python that runs ``library``: this one for polyak, the peer's own virtual environment otherwise.

    A peer's environment is made on first use and brought up to date when its pins change.
    """
    if library == "polyak":
        return Path(sys.executable)
    folder = VENVS / library
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    packages = (PEERS | ENGINES | OFFLINE | SEARCHES | CLUSTERS)[library]
    pins = "\n".join(packages)
    stamp, digest = folder / "installed.txt", hashlib.sha256(pins.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest and python.exists():
        return python
    print(f"making {folder} ({', '.join(packages)}); this takes minutes once", flush=True)
    if not python.exists():
        venv.create(folder, with_pip=True, clear=True)
    for wanted in ([packages[0]], packages):  # torch first: the others would take another build of it
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    stamp.write_text(digest)
    return python


def run_worker(library: str, job: dict[str, Any], threads: int, timeout_s: float = 7200.0) -> dict[str, Any]:
    """Do ``job`` in a fresh process of ``library``, and return its result.

    ``threads`` compute threads are forced on it; 0 leaves the library its own choice.

    Raises:
        RunFailed: the process failed or took longer than ``timeout_s`` seconds.
    """
    python = interpreter(library)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONWARNINGS": "ignore",
        "PYTHONHASHSEED": "0",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # peers were compiled when they were installed
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.pop(name, None)
        if threads > 0:
            environment[name] = str(threads)
    if threads == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    with tempfile.TemporaryDirectory() as folder:
        job_file, result_file = Path(folder, "job.json"), Path(folder, "result.json")
        payload = job | {"library": library, "threads": threads, "result": str(result_file), "spawned_at": time.time()}
        job_file.write_text(json.dumps(payload))
        worker = subprocess.Popen(
            [python, HERE / "worker.py", job_file],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        _running.add(worker)
        try:
            printed, _ = worker.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"{library} took longer than {timeout_s:.0f} s: {job}") from error
        finally:
            worker.kill()
            worker.wait()
            _running.discard(worker)
        if worker.returncode or not result_file.exists():
            raise RunFailed(f"{library} failed (exit status {worker.returncode}): {job}\n{printed[-1500:]}")
        return json.loads(result_file.read_text())


def attempted(library: str, job: dict[str, Any], threads: int) -> dict[str, Any]:
    """What :func:`run_worker` returns, or as ``failed`` the end of what a worker without a result has printed."""
    try:
        return run_worker(library, job, threads)
    except RunFailed as error:
        return {"failed": str(error)[-500:]}
