"""Names that point to higher floors: what reads and writes the files of other libraries, and what files may name.

This is the one place where a lower floor knows of a higher one, and by name only: what is named is imported when such a
file is met.
"""

MODELS = {"policy.pth": "polyak.compat.sb3_face.files.model_zip:read"}
"""Zips of models, by a member that marks them -> what reads them as a file of polyak's own would be read."""
BUFFERS = {b"\x80": "polyak.compat.sb3_face.files.replay:read"}
"""Replay buffers, by their first byte -> what reads them as a buffer's state dict."""
EXPERIENCE = {b"\x80": "polyak.compat.sb3_face.files.replay:recorded"}
"""Replay buffers, by their first byte -> what reads them as a dataset's recording."""
PICKLES = "polyak.compat.sb3_face.files.unpickle:loads"
"""What reads a pickle without running it."""
EXPERIENCE_IN_ZIPS = {"polyak.json": "polyak.checkpoint.recorded_experience:read"}
"""Zips with a replay buffer inside, by a member that marks them -> what reads them as a dataset's recording."""
STATISTICS = {b"\x80": "polyak.compat.sb3_face.files.statistics:read"}
"""Statistics of ``VecNormalize``, by their first byte -> what reads them as its state dict."""

MODEL_WRITERS = {"sb3": "polyak.compat.sb3_face.files.export:save"}
"""Formats -> what writes a model in them."""
STATISTICS_WRITERS = {"sb3": "polyak.compat.sb3_face.files.statistics:save"}
"""Formats -> what writes a ``VecNormalize`` in them."""

NAMED_IN_FILES = (
    "polyak.envs.",
    "polyak.nn.",
    "polyak.experience.",
    "polyak.noise.",
    "polyak.schedules.",
    "polyak.learning.",
    "polyak.collecting.",
    "polyak.checkpoint.",
    "polyak.callbacks.",
    "polyak.fields.",
    "polyak.algorithms.",
    "polyak.compat.",
    "polyak.zoo.callbacks.",
)
"""Where the classes are that a file of polyak's own may name."""
CHANGES_THE_PROGRAM = "polyak.compat.startup."
"""Modules among these whose import has effects, and that no file may name."""

MODULES_MOVED = {
    "polyak.compat.algorithms": "polyak.compat.sb3_face.algorithms",
    "polyak.compat.buffers": "polyak.compat.sb3_face.buffers",
    "polyak.compat.distributions": "polyak.compat.sb3_face.distributions",
    "polyak.compat.functions": "polyak.compat.sb3_face.functions",
    "polyak.compat.overrides": "polyak.compat.sb3_face.overrides",
    "polyak.compat.parts": "polyak.compat.sb3_face.parts",
    "polyak.compat.policies": "polyak.compat.sb3_face.policies",
    "polyak.compat.policy_file": "polyak.compat.sb3_face.policy_file",
    "polyak.compat.ray_names": "polyak.compat.rllib_face.ray_names",
    "polyak.compat.reexports": "polyak.compat.sb3_face.reexports",
    "polyak.compat.results_plotter": "polyak.compat.sb3_face.results_plotter",
    "polyak.compat.rllib_table": "polyak.compat.rllib_face.table",
    "polyak.compat.save_util": "polyak.compat.sb3_face.save_util",
    "polyak.compat.signatures": "polyak.compat.sb3_face.signatures",
    "polyak.compat.table": "polyak.compat.sb3_face.table",
    "polyak.compat.rllib_face.processes.players": "polyak.algorithms.search.ray_crew",
    "polyak.core.acting.noise": "polyak.noise",
    "polyak.core.loops.off_policy": "polyak.collecting.train_freq",
    "polyak.core.noise": "polyak.noise",
    "polyak.core.off_policy": "polyak.collecting.train_freq",
    "polyak.core.reward": "polyak.algorithms.imitation.reward",
    "polyak.core.schedules": "polyak.schedules",
    "polyak.core.search.crew": "polyak.algorithms.search.crew",
    "polyak.data.base": "polyak.experience.base_buffer",
    "polyak.data.batch": "polyak.experience.batch",
    "polyak.data.circular": "polyak.experience.reused_batches",
    "polyak.data.datasets.parts": "polyak.experience.datasets.episodes",
    "polyak.data.datasets.seen": "polyak.experience.datasets.model_observations",
    "polyak.data.episodes": "polyak.experience.episode_buffer",
    "polyak.data.her": "polyak.experience.hindsight.her",
    "polyak.data.mirror": "polyak.experience.mirror",
    "polyak.data.placement": "polyak.experience.placement",
    "polyak.data.positions": "polyak.algorithms.search.position_buffer",
    "polyak.data.relabel": "polyak.experience.hindsight.relabel",
    "polyak.data.replay": "polyak.experience.replay_buffer",
    "polyak.data.replay_memory": "polyak.experience.replay_memory",
    "polyak.data.replay_state": "polyak.experience.replay_state",
    "polyak.data.rollout": "polyak.experience.rollout_buffer",
    "polyak.data.samplers": "polyak.experience.samplers",
    "polyak.data.sampling.samplers": "polyak.experience.samplers",
    "polyak.data.schema": "polyak.experience.schema",
    "polyak.data.step": "polyak.experience.step",
    "polyak.data.trajectory": "polyak.experience.trajectory",
    "polyak.envs.composed": "polyak.envs.nested_spaces",
    "polyak.envs.finite": "polyak.envs.nan_checks",
    "polyak.envs.mistakes": "polyak.envs.validation",
    "polyak.envs.providers": "polyak.envs.registration",
    "polyak.envs.shown": "polyak.envs.normalisation_scale",
    "polyak.envs.vec.dummy": "polyak.envs.gym_batch",
    "polyak.envs.vec.env_slot": "polyak.envs.gym_batch",
    "polyak.kinds.off_policy": "polyak.collecting.train_freq",
    "polyak.nn.actor_critic": "polyak.nn.policies.actor_critic",
    "polyak.nn.continuous_policy": "polyak.nn.policies.continuous",
    "polyak.nn.encoders": "polyak.nn.networks.encoders",
    "polyak.nn.layers": "polyak.nn.networks.layers",
    "polyak.nn.policies": "polyak.nn.policies.base",
    "polyak.nn.value_policy": "polyak.nn.policies.value",
}
"""Modules of earlier commits whose classes can stand in a file -> the modules that hold them now."""
TENSORS_RENAMED = (
    (r"\bnet\.(\d+)\.(?!cnn)", r"net.mlp.\1."),
    (r"\bcnn\.", "net.0.cnn."),
    (r"\bcore\.", "lstm."),
    (r"\bcore\.", "gru."),
)
"""Parts of the names of tensors in files of earlier commits -> what they are now, where a model has no such tensor."""
CONSTANTS = ("log_std_clip_param_const",)
"""How names of tensors end that files of earlier commits lack, since no training changes them."""
ROOMS_MOVED = {
    "polyak.compat.sb3_files.": "polyak.compat.sb3_face.files.",
    "polyak.compat.recurrent.": "polyak.compat.sb3_face.recurrent.",
    "polyak.compat.maskable.": "polyak.compat.sb3_face.maskable.",
    "polyak.data.hindsight.": "polyak.experience.hindsight.",
    "polyak.data.datasets.": "polyak.experience.datasets.",
    "polyak.data.sampling.": "polyak.experience.sampling.",
    "polyak.compat.ray.": "polyak.compat.rllib_face.",
    "polyak.scale.": "polyak.compat.rllib_face.",
    "polyak.data.": "polyak.experience.",
}
"""Packages whose other modules have moved as they are, the longest names first."""
