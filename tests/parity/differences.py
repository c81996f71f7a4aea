"""Where polyak answers otherwise than Stable-Baselines3: on purpose, or not yet alike.

``title`` stands in bold in docs/from_sb3.md, where the reason is told to users. ``where`` are patterns of paths in the
answers of the programs; an entry without any has no program that shows it. Entries whose paths agree by now are to be
taken out: a test says so.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class Difference(NamedTuple):
    """One difference.

    Args:
        title: what the page calls it.
        reason: why it is so.
        where: patterns of paths.
    """

    title: str
    reason: str
    where: tuple[str, ...] = ()


_CONSTRUCTORS = (
    "DQN in a box",
    "SAC with numbers",
    "unbounded",
    "tuple of actions",
    "grid of switches",
    "vector for MultiInputPolicy",
    "vector for CnnPolicy",
    "one sample",
    "batch of one",
    "clip_range_vf",
    "ent_coef start",
    "device",
    "environment",
)

DELIBERATE = (
    Difference(
        "Loading runs no code",
        "A file from somebody else must not be able to run a program. What can only be read by running it, such as a "
        "lambda, needs trust=True or custom_objects; without, its default is used, with a warning.",
        ("files/lambdas",),
    ),
    Difference(
        "A model brings its normalisation along",
        "A policy without the statistics that it was trained with is useless, and forgetting them is silent.",
    ),
    Difference(
        "Wrong arguments are ValueErrors",
        "Assertions vanish under python -O and seldom name the argument; every kind of wrong value is the same error.",
        (
            *(f"mistakes/constructors/{name}" for name in _CONSTRUCTORS),
            *(
                f"mistakes/learning/{name}"
                for name in ("episodes of two", "no environment", "other number", "log interval")
            ),
            *(f"mistakes/pieces/{name}" for name in ("unknown keys", "device", "no environments", "frame stack order")),
            "normalizing/other_shape",
        ),
    ),
    Difference(
        "Memory-saving replay is exact",
        "One class stores either way and gives equal samples, so there is nothing to forbid.",
        ("mistakes/constructors/saved memory with timeouts",),
    ),
    Difference(
        "One replay buffer for all observations",
        "ReplayBuffer and RolloutBuffer take Dict observations, so handing them some is no error.",
        ("mistakes/pieces/Dict in *Buffer",),
    ),
    Difference(
        "Misspelt values are errors",
        "ent_coef='automatic' reads as 'auto' there, because only the first letters are looked at.",
        ("mistakes/constructors/ent_coef",),
    ),
    Difference(
        "Callbacks inside callbacks hear the start and the end",
        "There, a child of an event callback is told of the start only, and callback_on_new_best of neither, so that "
        "they could not open and close files.",
        ("hooks/kinds/2", "hooks/events/0", "hooks/evaluation_callback/1"),
    ),
    Difference(
        "`locals` is a fixed set of names",
        "Callbacks get the names that are documented, not every variable that a loop happens to have.",
        (
            *(
                f"hooks/locals_of_the_loop/*/{name}"
                for name in (
                    "reset_num_timesteps",
                    "tb_log_name",
                    "progress_bar",
                    "action_noise",
                    "train_freq",
                    "continue_training",
                    "iteration",
                    "done",
                    "idx",
                    "num_collected_episodes",
                )
            ),
            "hooks/values_of_the_loop/SAC/num_collected_episodes",
            "evaluating/callbacks",
        ),
    ),
    Difference(
        "A Monitor that continues a file writes the header of a new one",
        "override_existing=False leaves a new file without header there, which load_results cannot read.",
        ("monitors/monitor_options/header",),
    ),
    Difference(
        "Tables round all numbers alike",
        "There, numbers of 32 bits are printed with all their digits.",
        ("monitors/csv_and_json/table/*",),
    ),
    Difference(
        "Six more values say where the time goes",
        "time/env, inference, copy, sample, update and other are logged to files; tables on the screen stay short.",
        tuple(f"logs/types/*/time/{part}" for part in ("env", "inference", "copy", "sample", "update", "other")),
    ),
    Difference(
        "A loaded VecNormalize keeps the running returns",
        "Training that goes on in the same episodes scales rewards as if it had not stopped; reset() clears them.",
        ("normalizing/files/4/*",),
    ),
    Difference(
        "Rewards are float32 from every VecEnv",
        "There, SubprocVecEnv gives float64 and DummyVecEnv float32.",
        ("vec_envs/ends_in_processes/0/*/1/dtype",),
    ),
    Difference(
        "Wrappers show the reset_infos of what they wrap",
        "There, a wrapper's own reset_infos stay empty.",
        ("vec_envs/*/episode number",),
    ),
    Difference(
        "Learning rates inside optimizers are tensors",
        "A schedule moves them in place, without recompiling; float(group['lr']) is the number of this moment.",
    ),
    Difference(
        "Evaluations are seeded",
        "Equal seeds give equal evaluations, and evaluating does not change what training draws.",
    ),
    Difference(
        "NaN and infinity are errors",
        "An observation or action that is not finite is named at once instead of ending in NaN weights.",
    ),
    Difference("A mask that forbids everything is an error", "An action that is not allowed would be taken silently."),
    Difference(
        "TRPO's `sub_sampling_factor` thins out the Fisher matrix alone",
        "The gradient and the line search cost little, and are better of all rows.",
        ("contrib/trpo_sub_sampling/*",),
    ),
    Difference(
        "Messages are worded otherwise", "Categories of warnings and classes of errors are promised, sentences are not."
    ),
    Difference(
        "Names of locals that cost something are computed when they are read",
        "self.locals of a callback is a dict whose values, log_probs and obs_tensor are computed when they are read.",
        ("hooks/attributes/4",),
    ),
)

MISSING = (
    Difference(
        "A model loaded without an environment has no replay buffer",
        "It is None, not an empty one, until load_replay_buffer(), set_env() or load(path, env=...) makes it.",
        ("files/buffers",),
    ),
    Difference(
        "A few private names",
        "_stats_window_size, and target_entropy as a number after it was computed.",
        ("files/attributes/*/_stats_window_size", "files/attribute_values/train_freq/2"),
    ),
    Difference(
        "Signatures of the Dict buffers",
        "help() shows only their first two parameters; all of them are taken.",
        ("signatures/constructors/common.buffers:Dict*Buffer/*",),
    ),
)


def difference_at(path: str) -> Difference | None:
    """The entry that a path belongs to."""
    for entry in (*DELIBERATE, *MISSING):
        if any(fnmatchcase(path, pattern) for pattern in entry.where):
            return entry
    return None
