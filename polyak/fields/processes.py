"""Groups of fields of algorithms that learn and act in several processes."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from polyak.distributed.ray_workers import MOST_RESTARTS
from polyak.distributed.runners import Transport
from polyak.experience.frames import Compression
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import FewestAndMost, Learners, Natural, Positive, Runners


@dataclass(eq=False, repr=False)
class WithLearners:
    """Fields of algorithms whose gradient steps may be shared by several processes."""

    _: KW_ONLY
    n_learners: Reload[Learners] = 1
    """Number of processes, including this one, that share each gradient step: each takes an equal share of the rows,
    and gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Reload[Transport] = "ray"
    """Connection to other processes: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which runs everything in this
    process, with equal results."""
    placement: Reload[dict[str, Any] | None] = None
    """Resources and location of other processes on a cluster, by kind (``"runners"``, ``"learners"``, ``"shards"``):
    arguments of :class:`~polyak.distributed.placement.Reservation`, such as ``{"runners": {"num_cpus": 2, "strategy":
    "PACK"}}``. By default runners and learners reserve one processor each, and are spread over the nodes."""


@dataclass(eq=False, repr=False)
class WithRunners(WithLearners):
    """Fields of algorithms whose environments may be stepped by several processes."""

    _: KW_ONLY
    n_runners: Reload[Runners | FewestAndMost] = 0
    """Number of processes that step environments of their own and send the experience; 0 steps them in this process.
    ``env`` is then a registered name, or a function that creates an environment or a vector of environments (it gets
    the index of the process if it takes an argument), and each process creates its own: ``model.n_envs`` counts those
    of all. All make the same number of steps. ``(min, max)``: as many as the cluster has room for; ``model.n_envs`` and
    rollouts are those of ``max``, and present runners make the steps of missing ones."""
    runner_timeout: Reload[Positive | None] = 60.0
    """Seconds within which the environments of a runner on Ray must have answered to a step or a reset; a runner whose
    environments take longer is replaced, with a warning. ``None`` waits for ever."""
    compression: Reload[Compression | None] = None
    """How runners on Ray compress images that they send: ``"lz4"`` (needs ``polyak[scale]``), or ``None``, not at all.
    Frames of stacked images are sent once in any case."""
    restarts_per_hour: Reload[Natural] = MOST_RESTARTS
    """Number of runners that may be replaced within an hour; when one more is lost, training ends with an error."""
