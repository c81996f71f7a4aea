"""What processes reserve on a cluster, and where they are."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from polyak import DQN, IMPALA, PPO
from polyak.distributed import placement as module
from polyak.distributed.placement import Reservation, placement_of, room, wait_for_room
from polyak.hyperparameters.declaration import HyperparameterError

NODES = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0, "fast": 2.0}, {"CPU": 1.0}]
FREE = {"CPU": 6.0, "GPU": 1.0, "fast": 2.0}


@pytest.mark.parametrize(
    ("placement", "most", "now"),
    [
        (Reservation(), 8, 6),
        (Reservation(num_cpus=2), 3, 3),
        (Reservation(num_cpus=0.5), 16, 12),
        (Reservation(num_gpus=0.5), 2, 2),
        (Reservation(resources={"fast": 1}), 2, 2),
        (Reservation(resources={"none": 1}), 0, 0),
        (Reservation(strategy="STRICT_SPREAD"), 3, 3),
        (Reservation(num_cpus=3, strategy="STRICT_SPREAD"), 2, 2),
        (Reservation(strategy="STRICT_PACK"), 4, 4),
    ],
)
def test_how_many_fit(placement: Reservation, most: int, now: int) -> None:
    assert room(placement, NODES, FREE) == (most, now)


def test_what_reserves_nothing_always_fits() -> None:
    assert min(room(Reservation(num_cpus=0), NODES, FREE)) > 10**6
    assert placement_of(None, "shards").bundle == {}
    assert placement_of(None, "runners").bundle == {"CPU": 1}
    assert placement_of({"runners": {"num_cpus": 2, "strategy": "PACK"}}, "runners") == Reservation(2, strategy="PACK")


class FakeRay:
    """A cluster whose third node comes when it is looked at for the fourth time."""

    def __init__(self, late: bool) -> None:
        self.looks, self.late = 0, late

    def nodes(self) -> list[dict[str, Any]]:
        self.looks += 1
        nodes = [{"Resources": node, "Alive": True} for node in NODES]
        nodes[2]["Resources"] = {"CPU": 9.0}
        nodes[2]["Alive"] = self.late and self.looks > 3
        return nodes

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 16.0 if self.late and self.looks > 3 else 7.0}


def test_too_many_are_refused_at_once_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    asked: list[Any] = []
    autoscaler = SimpleNamespace(request_resources=lambda bundles: asked.append(bundles))
    monkeypatch.setattr(module, "import_module", {"ray.autoscaler.sdk": autoscaler}.__getitem__)
    cluster = FakeRay(late=False)
    with pytest.raises(
        HyperparameterError, match=r"n_runners=9: each reserves 1 CPU, and the cluster of 2 nodes has .*7"
    ):
        wait_for_room(cluster, Reservation(), 9, "n_runners")
    assert (cluster.looks, asked) == (1, [])
    with pytest.warns(UserWarning, match=r"n_runners=9: there is room for 7. Waiting 60 seconds"):
        wait_for_room(FakeRay(late=True), Reservation(wait=60), 9, "n_runners")
    assert asked == [[{"CPU": 1.0}] * 9, []]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"runner": {}}, "'runner'.*Did you mean 'runners'"),
        ({"runners": {"cpus": 2}}, "'cpus'.*num_cpus"),
        ({"runners": {"num_cpus": -1}}, "num_cpus=-1"),
        ({"learners": {"strategy": "SPRAED"}}, "strategy='SPRAED'.*Did you mean 'SPREAD'"),
        ({"shards": 3}, r"placement\['shards'\]=3"),
        ("SPREAD", "placement='SPREAD'"),
    ],
)
def test_what_says_nothing_is_refused_at_construction(given: Any, words: str) -> None:
    with pytest.raises(HyperparameterError, match=words):
        PPO("MlpPolicy", "CartPole-v1", placement=given)


# -- on nodes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Four nodes of one processor each; the program is on a fifth, of none."""
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    try:
        made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        made.nodes = [made.add_node(num_cpus=1) for _ in range(4)]
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        made.wait_for_nodes()
    except Exception as error:  # it wants sockets, shared memory and more
        pytest.skip(f"Ray does not start here: {error}")
    yield made
    ray.shutdown()
    made.shutdown()


SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "compile": False, "device": "cpu"}
FOLLOW: dict[str, tuple[Any, dict[str, Any]]] = {
    "rollouts of all": (PPO, {"n_steps": 32, "batch_size": 32}),
    "rollouts of each": (IMPALA, {"n_steps": 32}),
    "replay": (DQN, {"learning_starts": 32, "batch_size": 8, "train_freq": 4, "gradient_steps": -1}),
}
"""Ways to ask runners for steps."""


@pytest.mark.slow
def test_runners_are_spread_and_come_back_with_a_node(cluster: Any) -> None:
    import ray

    model = PPO("MlpPolicy", "CartPole-v1", n_runners=4, n_steps=32, batch_size=32, **SMALL)
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
    assert set(ray_nodes(model.env)) == alive
    with pytest.raises(HyperparameterError, match="n_runners=2: each reserves 1 CPU.*has room for 0 now, and for 4"):
        DQN("MlpPolicy", "CartPole-v1", n_runners=2, **SMALL)
    model.learn(256)
    cluster.remove_node(cluster.nodes.pop())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # they say who is gone
        model.learn(512, reset_num_timesteps=False)
        assert model.num_timesteps == 768
        cluster.nodes.append(cluster.add_node(num_cpus=1))
        began = time.monotonic()
        while model.env.absent and time.monotonic() < began + 120:
            model.learn(128, reset_num_timesteps=False)
    assert not model.env.absent
    assert model.env.workers.restarts == 1
    assert len(set(ray_nodes(model.env))) == 4
    model.env.close()
    packed = PPO("MlpPolicy", "CartPole-v1", n_runners=2, placement={"runners": {"strategy": "STRICT_SPREAD"}}, **SMALL)
    assert len(set(ray_nodes(packed.env))) == 2
    packed.env.close()


def learn_until(model: Any, done: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not done() and time.monotonic() < began + 120:
        model.learn(128, reset_num_timesteps=False)
    assert done()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:runner:RuntimeWarning")
@pytest.mark.parametrize("way", FOLLOW)
def test_runners_follow_the_nodes(way: str, cluster: Any) -> None:
    algorithm, options = FOLLOW[way]
    for _ in range(2):
        cluster.remove_node(cluster.nodes.pop())
    with pytest.raises(HyperparameterError, match=r"n_runners\[0\]=3: each reserves 1 CPU"):
        algorithm("MlpPolicy", "CartPole-v1", n_runners=(3, 4), **SMALL)
    model = algorithm("MlpPolicy", "CartPole-v1", n_runners=(1, 4), **options, **SMALL)
    learn_until(model, lambda: len(model.env.absent) == 2)
    cluster.nodes += [cluster.add_node(num_cpus=1) for _ in range(2)]
    learn_until(model, lambda: not model.env.absent)
    going = ray_nodes(model.env)[0]
    drain(cluster, going)
    learn_until(model, lambda: model.env.absent == {0})
    assert model.env.workers._renewals == [], "it was moved, not lost"
    left = next(node for node in cluster.nodes if node.node_id == going)
    cluster.remove_node(left)
    for node in [one for one in cluster.nodes if one is not left][:2]:
        cluster.remove_node(node)
    learn_until(model, lambda: len(model.env.absent) == 3)
    steps, updates = model.num_timesteps, model.learner.steps
    model.learn(128, reset_num_timesteps=False)
    assert model.num_timesteps == steps + 128
    assert model.learner.steps > updates
    model.env.close()


def drain(cluster: Any, node: str) -> None:
    """Give notice, as ``ray drain-node`` does."""
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=cluster.address).drain_node(node, reason, "", int(1000 * (time.time() + 600)))
    assert accepted, why


def ray_nodes(env: Any) -> list[str]:
    """The node of each runner."""
    import ray

    return ray.get([one.__ray_call__.remote(_node) for one in env.workers._actors])


def _node(_: Any) -> str:
    import ray

    return ray.get_runtime_context().get_node_id()
