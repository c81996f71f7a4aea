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
    """Makes each gradient step in several processes."""

    _: KW_ONLY
    n_learners: Reload[Learners] = 1
    """Processes that make each gradient step together, this one among them, on an equal share of the rows each; their
    gradients are averaged. ``compile="auto"`` does not compile these steps."""
    transport: Reload[Transport] = "ray"
    """How other processes are reached: ``"ray"`` (needs ``polyak[scale]``), or ``"local"``, which keeps all of it in
    this process, with the same results."""
    placement: Reload[dict[str, Any] | None] = None
    """What other processes reserve on a cluster, and where they are, by their kind (``"runners"``, ``"learners"``,
    ``"shards"``): arguments of :class:`~polyak.distributed.placement.Reservation`, such as
    ``{"runners": {"num_cpus": 2, "strategy": "PACK"}}``. Runners and learners reserve a processor each, and are spread
    over the nodes, unless something else is said."""


@dataclass(eq=False, repr=False)
class WithRunners(WithLearners):
    """Steps environments in several processes besides."""

    _: KW_ONLY
    n_runners: Reload[Runners | FewestAndMost] = 0
    """Processes that step environments of their own and send what they collect; 0 steps them here. ``env`` is then a
    registered name, or a function that makes an environment or a vector of them (it is given the number of the process
    if it has an argument), and each process makes its own: ``model.n_envs`` counts those of all. All make the same
    number of steps. ``(min, max)``: as many as a cluster has room for at a time; ``model.n_envs`` and rollouts are
    those of ``max``, and those that are there make the steps of those that are not."""
    runner_timeout: Reload[Positive | None] = 60.0
    """Seconds within which the environments of a runner on Ray must have answered to a step or a reset; a runner whose
    environments take longer is replaced, with a warning. ``None`` waits for ever."""
    compression: Reload[Compression | None] = None
    """How runners on Ray compress images that they send: ``"lz4"`` (needs ``polyak[scale]``), or ``None``, not at all.
    Frames of stacked images are sent once in any case."""
    restarts_per_hour: Reload[Natural] = MOST_RESTARTS
    """Runners that are replaced within an hour; when one more is lost, training ends with an error."""
