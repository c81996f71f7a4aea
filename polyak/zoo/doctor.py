"""``polyak doctor``: the speed of this machine, and the library's choices on it."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from polyak.zoo.options import CommandOptions, option

EXTRAS = {
    "ale-py": "atari",
    "mujoco": "mujoco",
    "numba": "fast",
    "tensorboard": "extra",
    "rich": "extra",
    "matplotlib": "extra",
    "scipy": "extra",
}


@dataclass
class DoctorOptions(CommandOptions):
    """Measure this machine, and print the choices of "auto" settings on it."""

    quick: bool = option(False, "--quick", help="Measure nothing.")


def doctor(options: DoctorOptions) -> None:
    """Print the versions, choices and measurements that `options` select."""
    import torch

    from polyak.zoo.measurements import call_cost, matrix_speeds, memory_speed

    print(f"polyak {metadata.version('polyak')}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}")
    for line in choices(measure=not options.quick):
        print(f"  {line}")
    print("optional packages: " + ", ".join(_installed(name, extra) for name, extra in EXTRAS.items()))
    if options.quick:
        return
    print("measured, best of many:")
    for found in (*matrix_speeds(), memory_speed(), call_cost()):
        print(f"  {found.what:<60} {found.value:8.1f} {found.unit}")


def choices(measure: bool = True) -> Iterator[str]:
    """Yield the choices of ``"auto"`` settings; without `measure` the device, which depends on speed, is left open."""
    import torch

    from polyak.learning.engine.cache import cache_folder
    from polyak.learning.engine.device import TYPICAL, choose
    from polyak.learning.engine.machine_speed import speeds
    from polyak.learning.engine.threads import AT_IMPORT, chosen_by_user

    if not torch.cuda.is_available():
        yield "device: cpu, since torch sees no usable GPU"
    elif not measure:
        yield "device: cuda or cpu, by their measured speed"
    else:
        for name, work in TYPICAL.items():
            yield f"{name}: {choose(work, speeds())}"
    if chosen_by_user():
        yield f"threads: {torch.get_num_threads()}, as set by you"
    else:
        yield f"threads: 1 for small networks, {AT_IMPORT} for others"
    compiler = next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    if compiler is None:
        yield "gradient steps: uncompiled, since there is no C++ compiler (install g++)"
    else:
        yield f"gradient steps: compiled in long runs, with {compiler} on the CPU"
    folder = cache_folder()
    yield f"compiled programs: {len(list(folder.glob('*/program.so')))} in {folder}"


def _installed(name: str, extra: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} missing (pip install 'polyak[{extra}]')"
