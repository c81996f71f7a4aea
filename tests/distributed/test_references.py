"""Rollouts that go from runners to learners elsewhere by reference: their rows do not come here."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyak
from polyak.collecting.actor import copy_of
from polyak.compat.rllib_face.rollouts import RowsInOrder
from polyak.distributed import ray_workers
from polyak.distributed.learners import LearnersElsewhere
from polyak.distributed.placement import Reservation
from polyak.distributed.runner_process import Chunk
from polyak.distributed.runners import RemoteActor
from polyak.distributed.unrolls import UnrollElsewhere
from polyak.distributed.weights import flat_weights, put_back
from tests.compat.rllib_face.fake_ray import FakeRay, ObjectLostError, Reference
from tests.distributed.test_runners import REMEMBERS, ROLLOUT, TURNS, Kept, Parts, carts, strict, weights


class Watched(FakeRay):
    """Notes what comes here."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[type] = []

    def get(self, reference: Reference) -> Any:
        found = super().get(reference)
        self.came.append(type(found))
        return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Watched:
    gc.collect()  # processes of other tests are looked at once more when they go
    made = Watched()
    monkeypatch.setattr(ray_workers, "ray", lambda: made)
    return made


MAKES: dict[str, Any] = {
    "impala": lambda **o: polyak.IMPALA("MlpPolicy", carts, **TURNS, **{"n_runners": 2, **o}),
    "appo": lambda **o: polyak.APPO("MlpPolicy", strict, target_update_interval=2, **TURNS, n_runners=2, **o),
    "ppo": lambda **o: polyak.PPO("MlpPolicy", strict, **ROLLOUT, n_runners=2, **o),
    "recurrent ppo": lambda **o: polyak.RecurrentPPO("MlpLstmPolicy", carts, **ROLLOUT, n_runners=2, **o),
    "recurrent": lambda **o: polyak.IMPALA("MultiInputPolicy", Parts, **REMEMBERS, n_runners=2, **o),
}


def elsewhere(model: Any, fetches: bool = True, learners: int = 1) -> Any:
    """Let the model's gradient steps be made in other processes, which it follows after each."""
    group = LearnersElsewhere(learners, 0, False, "cpu", 1, Reservation())
    group.fetches = fetches
    group.begin(model.learner)
    make = model.train
    model.train = lambda: (make(), group.settle())
    return model


@pytest.fixture
def every_warning() -> Iterator[None]:
    """Torch warns of the same more than once."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("every_warning")
@pytest.mark.filterwarnings("error:.*is not writable")
@pytest.mark.parametrize("case", MAKES)
def test_what_is_learned_by_reference_is_what_is_learned_here(case: str, fake: Watched) -> None:
    here = MAKES[case]().learn(300)
    assert Chunk in fake.came
    fake.came.clear()
    there = elsewhere(MAKES[case]()).learn(300)
    np.testing.assert_array_equal(weights(here), weights(there))
    assert Chunk not in fake.came, "rows came here"
    assert here.num_timesteps == there.num_timesteps
    episodes = [[(one["r"], one["l"]) for one in model.ep_info_buffer] for model in (here, there)]
    assert episodes[0] == episodes[1] != []
    assert here.learner.steps == there.learner.steps
    logged = [model.logger.name_to_value.get("train/explained_variance", 0.0) for model in (here, there)]
    assert logged[0] == logged[1]


@pytest.mark.parametrize("case", ["impala", "ppo"])
def test_rows_come_where_a_callback_reads_them(case: str, fake: Watched) -> None:
    made, seen = list[Any](), [Kept(), Kept()]
    for kept in seen:
        made.append(model := elsewhere(MAKES[case]()) if made else MAKES[case]())
        model.learn(150)
        model.learn(150, kept, reset_num_timesteps=False)
        model.learn(150, reset_num_timesteps=False)
    np.testing.assert_array_equal(seen[0].rewards, seen[1].rewards)
    np.testing.assert_array_equal(weights(made[0]), weights(made[1]))


def test_a_file_holds_the_rows(fake: Watched, tmp_path: Path) -> None:
    whole = elsewhere(MAKES["impala"]())
    whole.learn(150)
    whole.runner.take()
    assert whole.runner.in_hand.apart is not None
    whole.save(tmp_path / "half.zip", include=whole.saves_also)
    half = polyak.IMPALA.load(tmp_path / "half.zip", env=carts, resume=True, device="cpu")
    whole.learn(150, reset_num_timesteps=False)
    half.learn(150, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))


class Learns(polyak.PPO):
    """Learns from a rollout in its own way."""

    def train(self) -> None:
        self.read = self.rollout_buffer.observations.copy()
        super().train()


class LearnsLater(polyak.IMPALA):
    """The same."""

    def train(self) -> None:
        self.read = self.rollout_buffer.observations.copy()
        super().train()


@pytest.mark.parametrize("cls", [Learns, LearnsLater])
def test_rows_come_where_a_program_learns_from_them_itself(cls: Any, fake: Watched) -> None:
    model = elsewhere(cls("MlpPolicy", carts, n_runners=2, **(ROLLOUT if cls is Learns else TURNS))).learn(64)
    assert Chunk in fake.came
    assert model.read.any()


def test_each_of_several_learners_takes_its_share(fake: Watched) -> None:
    model = elsewhere(MAKES["impala"]())
    model.learn(150)
    reference, weights_then = model.runner.take().apart
    whole = UnrollElsewhere(model.rollouts.buffer_recipe(), [(reference.value, weights_then)])
    actor = RemoteActor(copy_of(model.policy), {})
    group = model.learner.fellows
    group.size = 2
    parts = [group._share(whole, rank).unrolled(model.learner, actor, "cpu").trajectory for rank in range(2)]
    for name in ("rewards", "log_probs", "observations", "final_values"):
        both = torch.cat([getattr(part, name) for part in parts], 1)
        all_of_them = getattr(whole.unrolled(model.learner, actor, "cpu").trajectory, name)
        assert torch.equal(both, all_of_them)


def test_what_is_lost_with_a_node_is_not_learned_from(fake: Watched) -> None:
    model = elsewhere(MAKES["impala"]())
    model.learn(150)
    steps = model.learner.steps
    model.runner.take().apart[0].settle(error=ObjectLostError("its node died"))
    with pytest.warns(RuntimeWarning, match="lost with its node: its node died It is not learned from"):
        model.learn(model.n_steps * 2, reset_num_timesteps=False)
    assert model.learner.steps == steps
    model.learn(150, reset_num_timesteps=False)
    assert model.learner.steps > steps
    assert np.isfinite(weights(model)).all()


def test_rows_come_where_their_order_depends_on_them(fake: Watched) -> None:
    how = {"rollout_buffer_class": RowsInOrder, "rollout_buffer_kwargs": {"envs_per_runner": 1}}
    model = elsewhere(MAKES["ppo"](**how)).learn(64)
    assert Chunk in fake.came
    assert np.isfinite(weights(model)).all()


def test_weights_that_several_names_share_travel_once() -> None:
    """And are read where each name has them, as in files of earlier versions."""
    shared = torch.nn.Linear(2, 3)
    module = torch.nn.ModuleDict({"actor": shared, "critic": shared})
    expected = [tensor.clone() for tensor in module.state_dict().values()]
    of_each_name = np.concatenate([tensor.reshape(-1).numpy().view(np.uint8) for tensor in expected])
    once = flat_weights(module)
    assert 2 * len(once) == len(of_each_name)
    for flat in (once, of_each_name):
        torch.nn.init.zeros_(shared.weight)
        put_back(module, flat)
        assert all(torch.equal(ours, own) for ours, own in zip(module.state_dict().values(), expected, strict=True))
