"""Programs written for Stable-Baselines3 and sb3-contrib, unchanged.

Three ways in, all of them the same modules:

* ``polyak run train.py`` runs a script that imports ``stable_baselines3``;
* :func:`install`, called before those imports, does so within a program;
* ``polyak.compat.sb3`` and ``polyak.compat.contrib`` are the same names without touching the others:
  ``from polyak.compat.sb3 import PPO``.
"""

from collections.abc import Iterable

from polyak.compat import importer
from polyak.compat.table import CONTRIB, NEEDS, SB3

__all__ = ["install"]

_FINDERS = {
    "stable_baselines3": importer.AliasFinder("stable_baselines3", SB3, NEEDS),
    "sb3_contrib": importer.AliasFinder("sb3_contrib", CONTRIB, completes=True),
}


def install(only: Iterable[str] | None = None) -> None:
    """Answer ``import stable_baselines3`` and ``import sb3_contrib`` with polyak from now on; also if called twice.

    What polyak does not have of sb3-contrib comes from an installed sb3-contrib, on top of polyak's
    ``stable_baselines3``. An installed Stable-Baselines3 is never looked at.

    Args:
        only: those of the two packages to answer; the other is what is installed. ``None`` answers both.

    Raises:
        ImportError: one of the packages has already been imported from where it is installed.
        ValueError: ``only`` names something else.
    """
    names = list(_FINDERS if only is None else [only] if isinstance(only, str) else only)
    if unknown := [name for name in names if name not in _FINDERS]:
        raise ValueError(f"only={unknown} cannot be answered: name one or both of {list(_FINDERS)}.")
    for name in names:
        importer.install(_FINDERS[name])


importer.install(importer.AliasFinder(f"{__name__}.sb3", SB3, NEEDS))
importer.install(importer.AliasFinder(f"{__name__}.contrib", CONTRIB))
