"""Programs written for Stable-Baselines3, sb3-contrib and RLlib, unchanged.

Three ways in, all of them the same modules:

* ``polyak run train.py`` runs a script that imports ``stable_baselines3``;
* :func:`install`, called before those imports, does so within a program;
* ``polyak.compat.sb3`` and ``polyak.compat.contrib`` are the same names without touching the others:
  ``from polyak.compat.sb3 import PPO``; ``polyak.compat.rllib`` has those of ``ray.rllib``, and under ``tune`` those of
  ``ray.tune.registry``.

RLlib's names are answered where they are asked for: by ``install("ray")``, and under ``polyak run`` by a program that
imports them.
"""

from collections.abc import Iterable
from importlib.util import find_spec

from polyak.compat import importer
from polyak.compat.rllib_face.table import PREPARES, RAY, REFUSED, RLLIB, TUNE
from polyak.compat.run import hand_on
from polyak.compat.sb3_face.table import CONTRIB, NEEDS, SB3

__all__ = ["install"]

_FINDERS = {
    "stable_baselines3": importer.AliasFinder("stable_baselines3", SB3, NEEDS),
    "sb3_contrib": importer.AliasFinder("sb3_contrib", CONTRIB, completes=True),
}


def install(only: Iterable[str] | None = None) -> None:
    """Answer ``import stable_baselines3`` and ``import sb3_contrib`` with polyak from now on; also if called twice.

    What polyak does not have of sb3-contrib comes from an installed sb3-contrib, on top of polyak's
    ``stable_baselines3``. An installed Stable-Baselines3 is never looked at. Environment ``i`` of a vector then gets
    ``seed + i``, as there. Python processes that are started from then on, such as workers of ``SubprocVecEnv``, answer
    the two names too, by environment variables: see :mod:`polyak.compat.run`.

    With ``only="ray"`` so are ``ray.rllib`` and ``ray.tune.registry``. All else of ``ray`` is what is installed; where
    nothing is, there are ``ray.init()``, ``ray.shutdown()``, ``ray.is_initialized()`` and ``ray.__version__`` besides.

    Args:
        only: what to answer, of the two packages and ``"ray"``; the others are what is installed. ``None`` answers the
            two.

    Raises:
        ImportError: one of the packages has already been imported from where it is installed.
        ValueError: ``only`` names something else.
    """
    from polyak.envs.vec.seeds import count_seeds_up

    names = list(_FINDERS if only is None else [only] if isinstance(only, str) else only)
    if unknown := [name for name in names if name not in (*_FINDERS, "ray")]:
        raise ValueError(f"only={unknown} cannot be answered: name some of {[*_FINDERS, 'ray']}.")
    for name in names:
        if name == "ray":
            _install_ray()
        else:
            importer.install(_FINDERS[name])
            count_seeds_up()
    if peers := [name for name in names if name != "ray"]:
        hand_on(peers)


def _install_ray() -> None:
    installed = find_spec("ray") is not None
    if not installed:
        importer.install(importer.AliasFinder("ray", {"": RAY}))
    importer.install(importer.AliasFinder("ray.rllib", RLLIB, refused=REFUSED))
    importer.install(importer.AliasFinder("ray.tune", TUNE, completes=installed, prepares=PREPARES))


importer.install(importer.AliasFinder(f"{__name__}.sb3", SB3, NEEDS))
importer.install(importer.AliasFinder(f"{__name__}.contrib", CONTRIB))
importer.install(importer.AliasFinder(f"{__name__}.rllib", RLLIB, refused=REFUSED))
