"""The twin of a learner: what is done to it, or to anything in it, is not done to the learner."""

import sys
import threading
from collections import OrderedDict, defaultdict, deque
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import DQN, SAC
from polyak.experience import Transition
from polyak.learning.engine.optimizer_rules import RULES
from polyak.learning.engine.program import Inputs, Program
from polyak.learning.engine.twin import twin
from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.networks.encoders import BaseFeaturesExtractor
from tests.tolerance import drift


class Slotted:
    __slots__ = ("__hidden", "layer", "unset")

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.__hidden = layer

    @property
    def hidden(self) -> nn.Module:
        return self.__hidden


class Note:
    """Python state that a step may write."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Closes(Note):
    def __del__(self) -> None:
        self.closed.append(True)


class Whole(nn.Module):
    """A module that keeps its layer wherever one may keep it, and what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layer = nn.Linear(2, 2)
        self.again = layer
        self.bn = nn.BatchNorm1d(2)
        self.kept = [layer, {"x": (layer, 1)}, deque([layer]), {layer: "key"}, {layer}]
        self.ordered, self.default = OrderedDict(a=layer), defaultdict(list, a=[layer])
        self.bound, self.partial = layer.forward, partial(nn.functional.linear, weight=layer.weight)
        self.closure = lambda: layer
        self.note = Note(layer=layer, owner=self)
        self.attributes = vars(layer)
        self.slotted = Note(inner=Slotted(layer))
        self.lock, self.generator = threading.Lock(), (i for i in ())
        self.array, self.number = np.ones(3), torch.ones(3) * nn.Parameter(torch.ones(1))  # not a leaf
        self.closed: list[bool] = []
        self.handle = Closes(closed=self.closed)

    def forward(self, x: Tensor) -> Tensor:
        return self.bound(x)


def stand_ins(module: nn.Module) -> dict[int, Tensor]:
    return {id(t): torch.zeros_like(t) for t in (*module.parameters(), *module.buffers())}


def test_it_is_made_of_the_stand_ins_wherever_a_module_is_kept() -> None:
    module = Whole()
    given = stand_ins(module)
    other = twin(module, given)
    layer = other.layer
    assert type(other) is Whole
    assert layer is not module.layer
    assert layer.weight is given[id(module.layer.weight)]
    assert other.bn.running_mean is given[id(module.bn.running_mean)]
    mapping, (member,) = other.kept[3], other.kept[4]
    places = [
        other.again, other.kept[0], other.kept[1]["x"][0], other.kept[2][0], *mapping, member, other.ordered["a"],
        other.default["a"][0], other.bound.__self__, other.closure(), other.note.layer,
    ]  # fmt: skip
    assert all(place is layer for place in places)
    assert other.partial.keywords["weight"] is layer.weight
    assert other.note.owner is other
    assert other.attributes is vars(layer)
    assert other(torch.ones(1, 2)).eq(0).all()


def test_what_cannot_be_copied_or_need_not_be_is_shared() -> None:
    module = Whole()
    other = twin(module, stand_ins(module))
    for name in ("lock", "generator", "array", "number", "handle"):
        assert getattr(other, name) is getattr(module, name)
    closed = module.closed
    del other
    assert closed == []


def test_attributes_in_slots_are_copied_too() -> None:
    class Both(Slotted):
        pass

    layer = nn.Linear(2, 2)
    kept = Both(layer)
    kept.more = 1  # type: ignore[attr-defined]
    other = twin(kept, {id(layer): "stand-in"})
    assert (other.layer, other.hidden, other.more) == ("stand-in", "stand-in", 1)  # type: ignore[attr-defined]
    assert not hasattr(other, "unset")


def test_long_chains_and_circles_end() -> None:
    first = last = Note()
    for _ in range(3 * sys.getrecursionlimit()):
        last.next = Note()
        last = last.next
    last.next = first
    module = nn.Linear(1, 1)
    module.chain = first
    assert twin(module, {}).chain.next is not first.next


def test_a_module_that_would_close_something_cannot_have_one() -> None:
    class Closing(nn.Linear):
        def __del__(self) -> None: ...

    with pytest.raises(UntraceableError, match="Closing has a __del__"):
        twin(nn.Sequential(Closing(1, 1)), {})


def sac(**options: Any) -> SAC:
    kwargs = {"net_arch": [8, 8]} | options
    return SAC("MlpPolicy", "Pendulum-v1", learning_starts=20, batch_size=16, buffer_size=200, seed=0, device="cpu",
               compile=False, policy_kwargs=kwargs)  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"share_features_extractor": True}])
def test_the_twin_of_a_learner_is_built_as_it_is(options: dict[str, Any]) -> None:
    model = sac(**options).learn(30)
    inputs = Inputs(model.learner)
    before = {name: (value, id(value)) for name, value in vars(model.learner).items()}
    tensors = [tensor.clone() for tensor in inputs.tensors]
    other = inputs.twin(tensors, RULES)
    assert [name for name, _ in other.named_modules()] == [name for name, _ in model.learner.named_modules()]
    own = {id(t) for t in (*model.learner.parameters(), *model.learner.buffers())}
    reached = [t for module in other.modules() for t in (*module._parameters.values(), *module._buffers.values())]
    assert not own & {id(t) for t in reached}
    assert {id(t) for t in reached if t is not None} == {id(t) for t in tensors[: len(inputs.names)]}
    for name, optimizer in other.optimizers.items():
        assert optimizer is not model.learner.optimizers[name]
        assert all(any(p is t for t in tensors) for group in optimizer.param_groups for p in group["params"])
    assert other.policy.actor.optimizer is other.optimizers["actor"]
    assert {name: (value, id(value)) for name, value in vars(model.learner).items()} == before
    assert other.engine is model.learner.engine


def test_tracing_leaves_nothing_on_the_learner() -> None:
    model = sac().learn(30)
    before = {id(p): p.grad for p in model.learner.parameters()}
    batch = Transition.from_samples(model.replay_buffer.sample(16), 0.99)
    Program(model.learner, "gradient_step", batch, (True,))
    assert all(p.grad is before[id(p)] for p in model.learner.parameters())
    assert all(type(p) is nn.Parameter for p in model.learner.parameters())
    assert all(type(o) is torch.optim.Adam for o in model.learner.optimizers.values())


class Locked(BaseFeaturesExtractor):
    """A user's extractor that copy.deepcopy refuses, and that keeps what it computed."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 4)
        self.lock, self.layer, self.last = threading.Lock(), nn.Linear(4, 4), Note(features=None)
        self.apply_layer = lambda x: self.layer(x)  # a closure over the extractor

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            self.last.features = self.apply_layer(x)
        return self.last.features


def test_a_users_module_that_cannot_be_copied_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    kwargs = {"features_extractor_class": Locked, "net_arch": [8]}
    models = [
        DQN("MlpPolicy", "CartPole-v1", learning_starts=20, batch_size=16, buffer_size=200, train_freq=1, seed=0,
            device="cpu", compile=choice, policy_kwargs=kwargs).learn(40)
        for choice in (False, True)
    ]  # fmt: skip
    assert models[1].engine.status == "compiled"
    for ours, theirs in zip(*(model.learner.state_dict().values() for model in models), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=drift(models[0].learner.steps, 1e-4, 16 + 4 + 4 + 8))
    features = models[1].q_net.features_extractor.last.features
    assert type(features) is Tensor  # not one of those that a step is traced on
