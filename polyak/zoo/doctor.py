"""``polyak doctor``: what this machine can do, and what the library would choose on it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from polyak.zoo.options import option

EXTRAS = {
    "ale-py": "atari",
    "mujoco": "mujoco",
    "numba": "fast",
    "tensorboard": "extra",
    "rich": "extra",
    "matplotlib": "extra",
    "rliable": "zoo",
}


@dataclass
class DoctorOptions:
    """Measure this machine, and say what the "auto" settings come to on it."""

    quick: bool = option(False, "--quick", help="Measure nothing.")


def doctor(options: DoctorOptions) -> None:
    """Print what `options` ask for."""
    import torch

    from polyak.zoo.machine import call_rate, choices, matrix_rates, memory_rate

    print(f"polyak {metadata.version('polyak')}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}")
    for line in choices(measure=not options.quick):
        print(f"  {line}")
    print("optional packages: " + ", ".join(_installed(name, extra) for name, extra in EXTRAS.items()))
    if options.quick:
        return
    print("measured, best of many:")
    for found in (*matrix_rates(), memory_rate(), call_rate()):
        print(f"  {found.what:<60} {found.value:8.1f} {found.unit}")


def _installed(name: str, extra: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} missing (pip install 'polyak[{extra}]')"
