"""Where classes are now that files of earlier versions name elsewhere."""

MOVED = {
    "polyak.core.noise": "polyak.core.acting.noise",
    "polyak.core.off_policy": "polyak.core.loops.off_policy",
    "polyak.data.her": "polyak.data.hindsight.her",
    "polyak.data.relabel": "polyak.data.hindsight.relabel",
    "polyak.data.samplers": "polyak.experience.samplers",
    "polyak.data.sampling.samplers": "polyak.experience.samplers",
    "polyak.data.schema": "polyak.experience.schema",
    "polyak.nn.actor_critic": "polyak.nn.policies.actor_critic",
    "polyak.nn.continuous_policy": "polyak.nn.policies.continuous",
    "polyak.nn.encoders": "polyak.nn.networks.encoders",
    "polyak.nn.layers": "polyak.nn.networks.layers",
    "polyak.nn.policies": "polyak.nn.policies.base",
    "polyak.nn.value_policy": "polyak.nn.policies.value",
}
"""Modules of version 0.1.0 whose classes can stand in a file -> the modules that hold them now."""
