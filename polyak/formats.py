"""Names that point to higher floors: what reads and writes the files of other libraries, and what files may name.

This is the one place where a lower floor knows of a higher one, and by name only: what is named is imported when such a
file is met.
"""

MODELS = {"policy.pth": "polyak.compat.sb3_files.model_zip:read"}
"""Zips of models, by a member that tells them apart -> what reads them as a file of polyak's own would be read."""
BUFFERS = {b"\x80": "polyak.compat.sb3_files.replay:read"}
"""Replay buffers, by their first byte -> what reads them as a buffer's state dict."""
EXPERIENCE = {b"\x80": "polyak.compat.sb3_files.replay:recorded"}
"""Replay buffers, by their first byte -> what reads them as a dataset's recording."""
EXPERIENCE_IN_ZIPS = {"polyak.json": "polyak.core.files.recorded:read"}
"""Zips with a replay buffer inside, by a member that tells them apart -> what reads them as a dataset's recording."""
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
    "polyak.core.",
    "polyak.algorithms.",
    "polyak.scale.",
    "polyak.compat.",
)
"""Where the classes are that a file of polyak's own may name."""
