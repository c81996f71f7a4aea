"""A model's environments in its file: their exact state, and the statistics of ``VecNormalize``."""

import numpy as np

from polyak.checkpoint.saved import Saved, join_state, join_tree, prefixed, split_state, split_tree
from polyak.collecting.runner import Runner
from polyak.envs.normalisation import Normalisation
from polyak.envs.state import EnvStateError
from polyak.envs.wrapper_statistics import KEPT, checked
from polyak.envs.wrappers.normalize import detached
from polyak.warning import advise, warn_user


def save_environments(saved: Saved, runner: Runner) -> None:
    """Store the exact state of the environments in a file, or the reason why it is unknown.

    Args:
        saved: the file.
        runner: steps the environments.
    """
    if runner.obs is None:
        return
    try:
        if runner.is_ahead:
            raise EnvStateError("they are stepped in another thread (overlap=True)")
        arrays: dict[str, np.ndarray] = {}
        saved.info["environments"] = split_tree(runner.env.get_state(), arrays)
        saved.state |= prefixed("environments", arrays)
    except Exception as error:  # also errors of a user's own get_state
        saved.info["environments_unknown"] = f"{error}"[:1000]


def restore_environments(saved: Saved, runner: Runner) -> bool:
    """Restore the environments' state from a file. Returns whether this succeeded."""
    why = saved.info.get("environments_unknown")
    if why is None and "environments" not in saved.info:
        return False  # an older file, or of a model that had not acted
    if why is None:
        try:
            runner.env.set_state(join_tree(saved.info["environments"], saved.state_of("environments")))
            return True
        except Exception as error:  # also errors of a user's own set_state
            why = f"{error}"
    warn_user(f"training resumes with new episodes, since the state of the environments is unknown: {why}")
    return False


def save_statistics(saved: Saved, normalisation: Normalisation) -> None:
    """Store the statistics that a model was trained with in its file: of ``VecNormalize``, and of wrappers in its
    environments."""
    if any(found := normalisation.of_wrappers):
        kept = [{key: {name: one[name] for name in KEPT} for key, one in each.items()} for each in found]
        held: dict[str, np.ndarray] = {}
        saved.info["wrapper_statistics"] = split_tree(kept, held)
        saved.state |= prefixed("wrapper_statistics", held)
    if (normalizer := normalisation.known) is None:
        return
    if normalizer.overrides("normalize_obs", "_normalize_obs", "normalize_reward"):
        name = type(normalizer).__name__
        advise(
            "a file with statistics of an own normalisation",
            f"{name} normalises by code of its own, and a model's file holds the statistics alone: load it with "
            f"env={name}(...), which takes them.",
        )
    saved.info["normalizer"], arrays = split_state(normalizer.state_dict())
    if above := normalisation.above:
        saved.info["above_normalizer"] = list(above)
    saved.state |= prefixed("normalizer", arrays)


def load_statistics(saved: Saved, normalisation: Normalisation) -> None:
    """Restore the statistics of a model's file, if it has any.

    Raises:
        ValueError: they are damaged.
    """
    if "wrapper_statistics" in saved.info:
        found = join_tree(saved.info["wrapper_statistics"], saved.state_of("wrapper_statistics"))
        normalisation.loaded_of_wrappers = checked(found)
    if "normalizer" in saved.info:
        statistics = detached(join_state(saved.info["normalizer"], saved.state_of("normalizer")))
        normalisation.load(statistics, tuple(map(str, saved.info.get("above_normalizer", ()))))
