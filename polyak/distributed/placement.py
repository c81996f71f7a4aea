"""The placement of processes on a cluster, and the resources that each of them reserves."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal

from polyak.hyperparameters.declaration import HyperparameterError, require
from polyak.suggestions import did_you_mean
from polyak.warning import warn_user

KINDS = ("runners", "learners", "shards")
STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
GRACE = 10.0
"""Seconds within which resources that were just released must be free again."""


@dataclass(frozen=True)
class Reservation:
    """The resources of each process of a kind, and the choice of their nodes.

    On a Ray that was started on this machine for the model alone, only GPUs are reserved.

    Args:
        num_cpus: processors of each process; a fraction of one if below 1.
        num_gpus: GPUs of each process; a fraction of one if below 1.
        resources: name -> amount of custom resources of each process.
        strategy: ``"SPREAD"`` over the nodes, as evenly as there is room; ``"PACK"`` on as few nodes as possible;
            ``"STRICT_SPREAD"`` each on a node of its own; ``"STRICT_PACK"`` all on one. All but the first reserve a
            placement group of Ray.
        wait: seconds to wait for room, such as an autoscaler makes.

    Raises:
        HyperparameterError: an amount below 0, or an unknown strategy.
    """

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] | None = None
    strategy: Literal["SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK"] = "SPREAD"
    wait: float = 0.0

    def __post_init__(self) -> None:
        numbers = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "wait": self.wait}
        numbers |= {f"resources[{name!r}]": amount for name, amount in (self.resources or {}).items()}
        for name, amount in numbers.items():
            is_amount = isinstance(amount, int | float) and not isinstance(amount, bool) and amount >= 0
            require(is_amount, f"placement: {name}", amount, "it must be a number that is at least 0.")
        fix = f"there are {', '.join(STRATEGIES)}.{did_you_mean(str(self.strategy), STRATEGIES)}"
        require(self.strategy in STRATEGIES, "placement: strategy", self.strategy, fix)

    @property
    def bundle(self) -> dict[str, float]:
        """Returns the resources of each process, as Ray names them."""
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, **(self.resources or {})}
        return {name: float(amount) for name, amount in amounts.items() if amount}

    def options(self) -> dict[str, Any]:
        """Returns the resources as options of an actor."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": dict(self.resources or {}) or None}


def placement_of(given: Mapping[str, Any] | None, kind: str) -> Reservation:
    """Returns the reservation for one of :data:`KINDS` in the ``placement`` of a model: a :class:`Reservation`, or its
    arguments.

    Shards of a replay buffer reserve no processor by default.

    Raises:
        HyperparameterError: an unknown kind, or an unknown argument.
    """
    fix = f"give a dict such as {{'runners': {{'num_cpus': 2}}}}, with keys among {', '.join(KINDS)}."
    require(given is None or isinstance(given, Mapping), "placement", given, fix)
    for name in given or {}:
        require(name in KINDS, "placement", name, f"there are {', '.join(KINDS)}.{did_you_mean(str(name), KINDS)}")
    own = (given or {}).get(kind)
    if own is None:
        return Reservation(num_cpus=0.0 if kind == "shards" else 1.0)
    if isinstance(own, Reservation):
        return own
    known = [field.name for field in fields(Reservation)]
    require(isinstance(own, Mapping), f"placement[{kind!r}]", own, f"give a dict with keys among {', '.join(known)}.")
    for name in own:
        fix = f"there are {', '.join(known)}.{did_you_mean(str(name), known)}"
        require(name in known, f"placement[{kind!r}]", name, fix)
    return Reservation(**own)


def check_placement(given: Mapping[str, Any] | None) -> None:
    """Refuse a ``placement`` with unknown kinds, unknown arguments or values out of range."""
    for kind in KINDS:
        placement_of(given, kind)


def room(placement: Reservation, nodes: list[Mapping[str, float]], free: Mapping[str, float]) -> tuple[int, int]:
    """Returns the numbers of processes that a cluster has room for: in all of its nodes, and in its free resources.

    Args:
        placement: the resources of each process.
        nodes: name -> amount of each node's resources.
        free: name -> amount of unreserved resources, in all nodes together.
    """

    def times(amounts: Mapping[str, float]) -> float:
        return min((amounts.get(name, 0.0) // amount for name, amount in placement.bundle.items()), default=math.inf)

    of_each = [times(node) for node in nodes]
    if placement.strategy == "STRICT_SPREAD":
        of_each = [min(one, 1) for one in of_each]
    most = max(of_each, default=0) if placement.strategy == "STRICT_PACK" else sum(of_each)
    now = min(most, times(free))
    return _whole(most), _whole(now)


def _whole(number: float) -> int:
    return 2**31 if number == math.inf else int(number)


def wait_for_room(ray: Any, placement: Reservation, number: int, name: str) -> int:
    """Waits until a cluster has room for ``number`` processes, and returns for how many it has room.

    Args:
        ray: the connected module.
        placement: the resources of each process.
        number: number of processes.
        name: name of the setting with their number.

    Raises:
        HyperparameterError: there is no room after ``placement.wait`` seconds.
    """
    began, asks = time.monotonic(), False
    while True:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        most, now = room(placement, nodes, ray.available_resources())
        waited = time.monotonic() - began
        if now >= number:
            break
        if placement.wait > 0 and most < number and not asks:
            asks = True
            warn_user(f"{name}={number}: there is room for {most}. Waiting {placement.wait:g} seconds for more.")
            _ask_autoscaler([placement.bundle] * number)
        if waited >= max(placement.wait, GRACE if most >= number else 0.0):
            break
        time.sleep(0.2)
    if asks:
        _ask_autoscaler([])
    if now >= number:
        return now
    each = ", ".join(f"{amount:g} {name}" for name, amount in placement.bundle.items())
    why = f"each reserves {each}, and the cluster of {len(nodes)} nodes has room for {now}"
    why += f" now, and for {most} when nothing else runs" if now < most else ""
    raise HyperparameterError(
        f"{name}={number}: {why} (strategy {placement.strategy}). Set {name} to at most {now}, or "
        "reserve less by placement={...: {'num_cpus': 0.5}}, or wait for an autoscaler by {'wait': 600}."
    )


def on_leaving_nodes(ray: Any, actors: Sequence[Any]) -> list[int]:
    """Returns the positions of the actors on nodes that are being drained: by ``ray drain-node``, an autoscaler, or a
    cloud provider's notice.

    Ray reports this by a private interface; versions without it give none.
    """
    with contextlib.suppress(AttributeError, KeyError):
        known = ray._private.state.state
        if nodes := known.get_draining_nodes():
            places = [known.actor_table(actor._actor_id.hex())["Address"]["NodeID"] for actor in actors]
            return [number for number, place in enumerate(places) if place in nodes]
    return []


def _ask_autoscaler(bundles: list[dict[str, float]]) -> None:
    """Request room for these bundles from an autoscaler, if there is one, in place of earlier requests."""
    with contextlib.suppress(Exception):  # a small Ray has no autoscaler
        import_module("ray.autoscaler.sdk").request_resources(bundles=bundles)
