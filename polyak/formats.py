"""Names that point to higher floors: what reads and writes the files of other libraries, and what files may name.

This is the one place where a lower floor knows of a higher one, and by name only: what is named is imported when such a
file is met.
"""

MODELS = {"policy.pth": "polyak.compat.sb3_files.model_zip:read"}
"""Zips of models, by a member that marks them -> what reads them as a file of polyak's own would be read."""
BUFFERS = {b"\x80": "polyak.compat.sb3_files.replay:read"}
"""Replay buffers, by their first byte -> what reads them as a buffer's state dict."""
EXPERIENCE = {b"\x80": "polyak.compat.sb3_files.replay:recorded"}
"""Replay buffers, by their first byte -> what reads them as a dataset's recording."""
PICKLES = "polyak.compat.sb3_files.unpickle:loads"
"""What reads a pickle without running it."""
EXPERIENCE_IN_ZIPS = {"polyak.json": "polyak.checkpoint.recorded_experience:read"}
"""Zips with a replay buffer inside, by a member that marks them -> what reads them as a dataset's recording."""
STATISTICS = {b"\x80": "polyak.compat.sb3_files.statistics:read"}
"""Statistics of ``VecNormalize``, by their first byte -> what reads them as its state dict."""

MODEL_WRITERS = {"sb3": "polyak.compat.sb3_files.export:save"}
"""Formats -> what writes a model in them."""
STATISTICS_WRITERS = {"sb3": "polyak.compat.sb3_files.statistics:save"}
"""Formats -> what writes a ``VecNormalize`` in them."""

NAMED_IN_FILES = (
    "polyak.envs.",
    "polyak.nn.",
    "polyak.data.",
    "polyak.experience.",
    "polyak.noise.",
    "polyak.schedules.",
    "polyak.learning.",
    "polyak.collecting.",
    "polyak.checkpoint.",
    "polyak.callbacks.",
    "polyak.kinds.",
    "polyak.algorithms.",
    "polyak.compat.",
    "polyak.zoo.callbacks.",
)
"""Where the classes are that a file of polyak's own may name."""
CHANGES_THE_PROGRAM = "polyak.compat.startup."
"""Modules among these whose import has effects, and that no file may name."""

MODULES_MOVED = {
    "polyak.core.acting.noise": "polyak.noise",
    "polyak.core.loops.off_policy": "polyak.collecting.train_freq",
    "polyak.core.noise": "polyak.noise",
    "polyak.core.off_policy": "polyak.collecting.train_freq",
    "polyak.core.reward": "polyak.algorithms.imitation.reward",
    "polyak.core.schedules": "polyak.schedules",
    "polyak.core.search.crew": "polyak.algorithms.search.crew",
    "polyak.data.her": "polyak.data.hindsight.her",
    "polyak.data.relabel": "polyak.data.hindsight.relabel",
    "polyak.data.samplers": "polyak.experience.samplers",
    "polyak.data.sampling.samplers": "polyak.experience.samplers",
    "polyak.data.schema": "polyak.experience.schema",
    "polyak.kinds.off_policy": "polyak.collecting.train_freq",
    "polyak.nn.actor_critic": "polyak.nn.policies.actor_critic",
    "polyak.nn.continuous_policy": "polyak.nn.policies.continuous",
    "polyak.nn.encoders": "polyak.nn.networks.encoders",
    "polyak.nn.layers": "polyak.nn.networks.layers",
    "polyak.nn.policies": "polyak.nn.policies.base",
    "polyak.nn.value_policy": "polyak.nn.policies.value",
}
"""Modules of earlier commits whose classes can stand in a file -> the modules that hold them now."""
ROOMS_MOVED = {"polyak.scale.": "polyak.compat.ray."}
"""Packages whose modules have moved as they are."""
