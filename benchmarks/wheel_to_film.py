"""How long is the way from a wheel to an agent that is trained, filmed and exported? In an empty environment:
``python benchmarks/wheel_to_film.py dist/polyak-*.whl``.

Dependencies are those of this interpreter, put behind what the environment has itself, so that no download is measured.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from tempfile import TemporaryDirectory

MODEL, FILM, EXPORTED = "ppo_cartpole.zip", "episode.gif", "policy.onnx"
CHECK = f"""
import numpy as np, onnxruntime, polyak
observations = np.random.default_rng(0).uniform(-0.1, 0.1, (100, 4)).astype(np.float32)
session = onnxruntime.InferenceSession({EXPORTED!r})
exported = [session.run(["action"], {{"observation": row[None]}})[0].item() for row in observations]
expected, _ = polyak.load({MODEL!r}).predict(observations, deterministic=True)
assert exported == expected.tolist(), "the exported policy acts otherwise"
print(polyak.__file__)
"""


def environment(wheel: Path, place: Path) -> Path:
    """Make a virtual environment with this wheel alone, and this interpreter's packages behind it.

    Returns:
        its folder of programs.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel.resolve())]
    subprocess.run(install, check=True, capture_output=True, text=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(subprocess.check_output([python, "-c", code], text=True).strip())
    (own / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return scripts


def run(command: list[str], folder: Path) -> str:
    """What a program prints that finds no other polyak than the environment's.

    Raises:
        RuntimeError: it failed.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def processor() -> float:
    """Seconds that programs have taken which this one has started: what an idle machine would need, or more."""
    used = os.times()
    return used.children_user + used.children_system


def wheel_to_film(wheel: Path, place: Path, out: Path) -> dict[str, tuple[float, float]]:
    """Install, train until CartPole is solved, film an episode, export, and compare 100 actions of the exported file.

    Args:
        wheel: the file.
        place: where the environment is made.
        out: where model, film and exported policy go.

    Returns:
        seconds of each stage, by the clock and of the processor.
    """
    out.mkdir(parents=True, exist_ok=True)
    before = time.perf_counter(), processor()
    scripts = environment(wheel, place)
    taken = {"install": (time.perf_counter() - before[0], processor() - before[1])}
    stages = {
        "train and film": [str(scripts / "polyak"), "demo", "--output", ".", "--no-progress"],
        "export": [str(scripts / "polyak"), "export", MODEL, "--output", EXPORTED],
        "compare": [str(scripts / "python"), "-c", CHECK],
    }
    for stage, command in stages.items():
        before = time.perf_counter(), processor()
        printed = run(command, out)
        taken[stage] = (time.perf_counter() - before[0], processor() - before[1])
    if not Path(printed.strip()).is_relative_to(place.resolve()):
        raise RuntimeError(f"the polyak that ran is {printed.strip()}, not the wheel's.")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/wheel_to_film"), help="folder for the agent's files")
    parser.add_argument("--most", type=float, default=60.0, help="seconds; more is a failure")
    options = parser.parse_args()
    if not options.wheel.is_file():
        parser.error(f"wheel: there is no file {options.wheel}; build one: python -m build")
    with TemporaryDirectory() as place:
        taken = wheel_to_film(options.wheel, Path(place, "environment"), options.out)
    clock, used = (sum(column) for column in zip(*taken.values(), strict=True))
    for stage, (seconds, of_processor) in [*taken.items(), ("together", (clock, used))]:
        print(f"{stage:15} {seconds:6.1f} s, {of_processor:6.1f} s of the processor")
    print(f"{options.out / FILM}, {options.out / EXPORTED}")
    sys.exit(clock > options.most)


if __name__ == "__main__":
    main()
