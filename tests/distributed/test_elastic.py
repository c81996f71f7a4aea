"""Runners that come and go with the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyak
from polyak.distributed import ray_workers
from polyak.envs import VecNormalize
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat.rllib_face.fake_ray import Actor, FakeRay
from tests.distributed.test_normalised_runners import Noted
from tests.distributed.test_runners import REPLAY, ROLLOUT, TURNS, carts

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_steps:UserWarning")


class Cluster(FakeRay):
    """So many processors, a node each; actors wait until one is free. Those of nodes that go with notice are named by
    their numbers."""

    def __init__(self, processors: int) -> None:
        super().__init__()
        self.processors, self.drained = processors, set[int]()
        self._private = SimpleNamespace(state=SimpleNamespace(state=self))

    def _begun(self, make: Callable[[], Any]) -> Actor:
        actor = super()._begun(make)
        actor.work, work = lambda requests: self._has_room(actor) and work(requests), actor.work  # type: ignore
        actor._actor_id = SimpleNamespace(hex=lambda: str(self.actors.index(actor)))  # type: ignore[attr-defined]
        return actor

    def _has_room(self, actor: Actor) -> bool:
        return not actor.alive or actor in [one for one in self.actors if one.alive][: self.processors]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": float(self.processors)}

    def get_draining_nodes(self) -> dict[str, int]:
        return {str(number): 0 for number in self.drained}

    def actor_table(self, actor: str) -> dict[str, Any]:
        return {"Address": {"NodeID": actor}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(2)
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    monkeypatch.setattr(ray_workers, "ray", lambda: made)
    monkeypatch.setattr(ray_workers, "BETWEEN_LOOKS", 0.0)
    return made


def ppo(env: Any = carts, **options: Any) -> Any:
    return polyak.PPO("MlpPolicy", env, **ROLLOUT, **{"n_runners": (1, 4), **options})


MAKES: dict[str, Any] = {
    "ppo": ppo,
    "dqn": lambda **o: polyak.DQN("MlpPolicy", carts, **REPLAY, n_runners=(1, 4), **o),
    "impala": lambda **o: polyak.IMPALA("MlpPolicy", carts, **TURNS, n_runners=(1, 4), **o),
}


@pytest.mark.parametrize("case", MAKES)
def test_two_become_four_and_one(case: str, cluster: Cluster) -> None:
    model = MAKES[case]()
    assert (model.env.absent, model.n_envs) == ({2, 3}, 8)
    model.learn(300)
    assert model.env.absent == {2, 3}
    cluster.processors = 4
    model.learn(900, reset_num_timesteps=False)
    assert model.env.absent == set()
    assert len(set(model.env.processes)) == 1, "all are in this process here"
    cluster.processors = 1
    for actor in cluster.actors[1:4]:
        actor.die()
    with pytest.warns(RuntimeWarning, match="runner 2 of 4 is gone"):
        model.learn(900, reset_num_timesteps=False)
    assert model.env.absent == {1, 2, 3}
    assert model.num_timesteps >= 2100
    assert len(model.ep_info_buffer) > 0


def test_what_is_seen_is_counted_once_while_they_come_and_go(cluster: Cluster) -> None:
    made: list[VecNormalize] = []

    def noted(index: int) -> VecNormalize:
        made.append(VecNormalize(Noted(2 * index, 2 * index + 1), gamma=0.9))
        return made[-1]

    model = ppo(noted)
    counted = model.get_vec_normalize_env().obs_rms
    for processors, runners in ((2, 2), (4, 4)):
        cluster.processors = processors
        model.learn(4 * model.n_envs * model.n_steps, reset_num_timesteps=False)
        assert 4 - len(model.env.unwrapped.absent) == runners
    firsts = 2 * 4 + 2 * 2
    assert counted.count == pytest.approx(model.num_timesteps + firsts, abs=0.01)


def test_fewer_than_the_least_are_refused_by_number(cluster: Cluster) -> None:
    with pytest.raises(HyperparameterError, match=r"n_runners\[0\]=3: each reserves 1 CPU, .* room for 2"):
        ppo(n_runners=(3, 4))
    with pytest.raises(HyperparameterError, match=r"strategy='PACK'.*n_runners=\(1, 4\)"):
        ppo(placement={"runners": {"strategy": "PACK"}})
    for wrong in ((0, 4), (4, 2), (1, 2, 3)):
        with pytest.raises(HyperparameterError, match="a pair"):
            ppo(n_runners=wrong)


@pytest.mark.parametrize("case", ["dqn", "impala"])
def test_one_whose_node_is_about_to_go_finishes_and_is_moved(case: str, cluster: Cluster) -> None:
    model = MAKES[case]().learn(300)
    cluster.drained, lost = {1}, list[int]()
    model.env.on_absence = lost.append
    with pytest.warns(RuntimeWarning, match="runner 2 of 4 leaves a node that is about to go"):
        model.learn(600, reset_num_timesteps=False)
    assert lost == [], "nothing that it was asked for is asked of another"
    assert not cluster.actors[1].alive
    assert 1 not in model.env.absent or 2 not in model.env.absent, "another has its processor"
    assert model.env.workers._renewals == [], "it is no failure"
    cluster.processors, cluster.drained = 1, {number for number, _ in enumerate(cluster.actors)}
    with pytest.warns(RuntimeWarning, match="leaves a node"):
        model.learn(300, reset_num_timesteps=False)
    assert len(model.env.absent) == 3, "the last one stays until it is gone"


@pytest.mark.parametrize("processors", [2, 4])
def test_a_file_is_continued_by_as_many_as_there_are(processors: int, cluster: Cluster, tmp_path: Path) -> None:
    model = MAKES["dqn"]().learn(300)
    model.save(tmp_path / "model", include=model.saves_also)
    model.env.close()
    cluster.processors = processors
    resumed: Any = polyak.DQN.load(tmp_path / "model", env=carts, resume=True)
    cuts: list[int] = []
    resumed.runner.on_loss = lambda: cuts.append(resumed.num_timesteps)
    resumed.learn(600, reset_num_timesteps=False)
    assert len(resumed.env.absent) == 4 - processors
    assert cuts, "no n-step return and no hindsight goal reaches across"
    rows = resumed.replay_buffer.storage.read(np.arange(8))
    assert np.isfinite(rows["observations"]).all()


def test_an_expert_is_asked_here_alone(cluster: Cluster) -> None:
    """Runners elsewhere would never let it act, nor ask what it would have done."""
    with pytest.raises(HyperparameterError, match="n_runners=2 cannot be used: DAgger acts by what is in this process"):
        polyak.DAgger("MlpPolicy", "CartPole-v1", n_runners=2, expert=lambda _: 0, seed=0)
    assert not any(actor.alive for actor in cluster.actors)
