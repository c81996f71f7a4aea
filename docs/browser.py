"""Makes the page that plays agents in the browser work: ``python docs/browser.py SITE``, after ``mkdocs build``.

Puts beside ``SITE/play/index.html`` the agents that come along, exported, and onnxruntime-web, which npm downloads at a
pinned version with a hash. From then on the page needs no network: ``python -m http.server -d SITE``.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).parent / "play"
AGENTS = {"CartPole-v1": "ppo", "Pendulum-v1": "sac", "Acrobot-v1": "trpo", "MountainCar-v0": "qrdqn"}
"""Environments that the page has -> the algorithm of the agent that plays there."""
PACKAGE = "onnxruntime-web@1.30.0"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
"""Of the package: the program, and what it runs on one thread of the processor."""


def runtime(folder: Path) -> None:
    """Download onnxruntime-web.

    Raises:
        SystemExit: there is no npm, npm has no such package for us, or it is another one than it was.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("The page needs onnxruntime-web, which npm downloads: install Node.js.")
    with TemporaryDirectory() as kept:
        done = subprocess.run([npm, "pack", PACKAGE, "--silent"], cwd=kept, capture_output=True, text=True)
        packed = next(Path(kept).glob("*.tgz"), None)
        if packed is None:
            raise SystemExit(f"npm pack {PACKAGE} failed: {done.stderr.strip()}")
        found = b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if found != SHA512:
            raise SystemExit(f"{PACKAGE} has the SHA-512 {found}, not {SHA512}: it is not the package that was pinned.")
        with tarfile.open(packed) as archive:
            for name in FILES:
                member = archive.extractfile(f"package/dist/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())


def agents(folder: Path) -> None:
    """Export the agents, and list them in ``agents.json``."""
    from polyak.zoo.export import ExportOptions, export

    listed = []
    for env, algo in AGENTS.items():
        file = f"{algo}-{env}.onnx"
        with redirect_stdout(sys.stderr):
            export(ExportOptions(algo=algo, env=env, pretrained=True, output=str(folder / file), masks=False))
        listed.append({"name": f"{algo}, {env}", "env": env, "file": file})
    (folder / "agents.json").write_text(json.dumps(listed, indent=1) + "\n", "utf-8")


def main(arguments: list[str]) -> None:
    """Fill the folder ``play`` of the site."""
    if len(arguments) != 1:
        raise SystemExit("usage: python docs/browser.py SITE")
    folder = Path(arguments[0], "play")
    folder.mkdir(parents=True, exist_ok=True)
    for path in PAGE.iterdir():
        shutil.copy(path, folder / path.name)
    agents(folder)
    runtime(folder)
    print(f"wrote {folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
