"""Names of code in higher layers: readers and writers of other libraries' files, and classes that files may name.

Only here does a lower layer refer to a higher one, and by name: the code is imported when such a file is read or
written.
"""

MODELS = {"policy.pth": "polyak.compat.sb3_face.files.model_zip:read"}
"""Member that marks a zip of a model -> reader that returns it in the form of polyak's own files."""
BUFFERS = {b"\x80": "polyak.compat.sb3_face.files.replay:read"}
"""First byte of a replay buffer's file -> reader that returns its state dict."""
EXPERIENCE = {b"\x80": "polyak.compat.sb3_face.files.replay:recorded"}
"""First byte of a replay buffer's file -> reader that returns a dataset's recording."""
PICKLES = "polyak.compat.sb3_face.files.unpickle:loads"
"""Reader of pickles that does not run them."""
EXPERIENCE_IN_ZIPS = {"polyak.json": "polyak.checkpoint.recorded_experience:read"}
"""Member that marks a zip with a replay buffer -> reader that returns a dataset's recording."""
STATISTICS = {b"\x80": "polyak.compat.sb3_face.files.statistics:read"}
"""First byte of a file with statistics of ``VecNormalize`` -> reader that returns its state dict."""

MODEL_WRITERS = {"sb3": "polyak.compat.sb3_face.files.export:save"}
"""Format -> writer of models."""
STATISTICS_WRITERS = {"sb3": "polyak.compat.sb3_face.files.statistics:save"}
"""Format -> writer of ``VecNormalize``."""

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
"""Modules of the classes that a file of polyak's own may name."""
CHANGES_THE_PROGRAM = "polyak.compat.startup."
"""Modules among these whose import has side effects, and that no file may name."""

COMPUTING = tuple(f"polyak.{room}" for room in ["nn", "ops", "schedules", "learning", "fields", "algorithms", "compat"])
"""Modules whose functions compute when a network calls them, and do nothing else."""

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
"""Modules of earlier commits whose classes may be in a file -> their present modules."""
TENSORS_RENAMED = (
    (r"\bnet\.(\d+)\.(?!cnn)", r"net.mlp.\1."),
    (r"\bcnn\.", "net.0.cnn."),
    (r"\bcore\.", "lstm."),
    (r"\bcore\.", "gru."),
)
"""Parts of tensor names in files of earlier commits -> present ones, for models without a tensor of the old name."""
CONSTANTS = ("log_std_clip_param_const",)
"""Suffixes of tensor names that files of earlier commits lack, since training does not change them."""
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
"""Packages whose other modules have moved unchanged, the longest names first."""
