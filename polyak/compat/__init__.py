"""Programs written for Stable-Baselines3 and sb3-contrib, unchanged.

Three ways in, all of them the same modules:

* ``polyak run train.py`` runs a script that imports ``stable_baselines3``;
* :func:`install`, called before those imports, does so within a program;
* ``polyak.compat.sb3`` and ``polyak.compat.contrib`` are the same names without touching the others:
  ``from polyak.compat.sb3 import PPO``.
"""

from polyak.compat import importer
from polyak.compat.table import CONTRIB, NEEDS, SB3

__all__ = ["install"]


def install() -> None:
    """Answer ``import stable_baselines3`` and ``import sb3_contrib`` with polyak from now on; also if called twice.

    Raises:
        ImportError: one of the two has already been imported from where it is installed.
    """
    importer.install(importer.AliasFinder("stable_baselines3", SB3, NEEDS))
    importer.install(importer.AliasFinder("sb3_contrib", CONTRIB))


importer.install(importer.AliasFinder(f"{__name__}.sb3", SB3, NEEDS))
importer.install(importer.AliasFinder(f"{__name__}.contrib", CONTRIB))
