"""Import paths of RL Baselines3 Zoo and Stable-Baselines3 in setting files, and their equivalents here."""

from __future__ import annotations

from polyak.zoo.errors import ZooError

_PACKAGES = {
    "stable_baselines3": "polyak.compat.sb3",
    "sb3_contrib": "polyak.compat.contrib",
    "rl_zoo3.wrappers": "polyak.envs",
    "rl_zoo3.callbacks": "polyak.zoo.callbacks",
    # Older files name the module of a wrapper, which moved from release to release of gymnasium.
    "gymnasium.wrappers": "gymnasium.wrappers",
    "gym.wrappers": "gymnasium.wrappers",
}
_FLAT = ("gymnasium.wrappers", "gym.wrappers")
_NOT_HERE = {
    "rl_zoo3.callbacks.ParallelTrainCallback": "training and acting take turns here. Leave it out",
    "rl_zoo3.callbacks.TrialEvalCallback": "trials report by themselves. Leave it out",
    "rl_zoo3.callbacks.SaveVecNormalizeCallback": "models are saved with their statistics. Leave it out",
}


def our_path(path: str) -> str:
    """Return polyak's import path for `path`, which is `path` itself if it is of another package.

    Raises ZooError for a class without an equivalent here.
    """
    if path in _NOT_HERE:
        raise ZooError(f"{path} has no equal in polyak: {_NOT_HERE[path]}.")
    for package, ours in _PACKAGES.items():
        if path.startswith(f"{package}."):
            inside = path.removeprefix(f"{package}.")
            if package in _FLAT and not inside.startswith("vector."):
                inside = inside.rpartition(".")[2]
            return f"{ours}.{inside}"
    return path
