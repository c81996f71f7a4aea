"""Recurrent layers and policies: sequences equal single steps, wherever episodes begin; numpy equals torch."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import polyak
from polyak.collecting.actor import Actor
from polyak.envs import DummyVecEnv, MaskVelocityWrapper, make_vec_env
from polyak.envs.testing import BitFlippingEnv
from polyak.experience import Transition
from polyak.experience.sampling.reduce import NStep
from polyak.learning.engine.program import Program
from polyak.learning.replayed_sequences import SequenceRows, sequence_errors
from polyak.nn.backends.eager import Eager
from polyak.nn.errors import PolicyError
from polyak.nn.networks.recall import Recalled
from polyak.nn.networks.recurrent import Recurrent, side_by_side
from polyak.ops.recurrent import gru, gru_steps, lstm, lstm_steps
from tests.pairs import one_of_each
from tests.tolerance import bound, drift
from tests.worlds import World

KINDS = {"lstm": (4, 2, lstm, lstm_steps, nn.LSTM), "gru": (3, 1, gru, gru_steps, nn.GRU)}
WIDTH = 6
PENDULUM = {"learning_starts": 60, "batch_size": 32, "buffer_size": 1000}
OFF_POLICY: dict[str, tuple[str, dict[str, Any]]] = {
    "DQN": ("CartPole-v1", {}),
    "C51": ("CartPole-v1", {"v_min": 0.0, "v_max": 50.0}),
    "IQN": ("CartPole-v1", {"n_steps": 2}),
    "Rainbow": ("CartPole-v1", {"v_min": 0.0, "v_max": 50.0}),
    "SAC": ("Pendulum-v1", {}),
    "TD3": ("Pendulum-v1", {"n_steps": 3, "prioritized": True}),
}
ON_POLICY: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 32, "batch_size": 32, "n_epochs": 2},
    "A2C": {},
    "TRPO": {"n_steps": 32, "batch_size": 32, "n_critic_updates": 2, "cg_max_steps": 3},
}
MEMORY = {"memory_size": WIDTH, "max_seq_len": 8, "net_arch": [8]}
#: Each algorithm with one kind of memory, and one of each loop with both.
EACH = [(name, list(KINDS)[i % 2]) for i, name in enumerate([*ON_POLICY, *OFF_POLICY])] + [
    ("PPO", "gru"),
    ("DQN", "lstm"),
]
TRACED = [(name, kind) for name, kind in EACH if (name, kind) in (("PPO", "lstm"), ("DQN", "gru"))]
TRACED += [
    pytest.param(*case, marks=pytest.mark.slow)
    for case in EACH
    if case not in TRACED and case[0] in ("PPO", "DQN", "SAC", "A2C", "TD3")
]


def model_of(name: str, kind: str, seed: int = 3, **options: Any) -> Any:
    """A small recurrent policy."""
    task, more = ("CartPole-v1", ON_POLICY[name]) if name in ON_POLICY else OFF_POLICY[name]
    kwargs = {**MEMORY, "memory": kind, **({"burn_in": 3} if name in OFF_POLICY else {}), **options.pop("kwargs", {})}
    settings = {**(PENDULUM if name in OFF_POLICY else {}), **more, **options}
    env = settings.pop("env", None) or make_vec_env(task, 2, seed=seed)
    return getattr(polyak, name)("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=kwargs, **settings)


# -- layers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_steps_with_their_gradients(kind: str) -> None:
    gates, parts, whole, steps, _ = KINDS[kind]
    torch.manual_seed(0)
    t, b, h = 9, 4, 5
    given = [torch.randn(*shape, dtype=torch.double) for shape in ((t, b, gates * h), (gates * h, h), (gates * h,))]
    memory = tuple(torch.randn(b, h, dtype=torch.double) for _ in range(parts))
    keep = (torch.rand(t, b) > 0.3).double()
    weights = torch.randn(t, b, h, dtype=torch.double)
    found = []
    for function in (whole, steps):
        inputs, weight, bias = (x.clone().requires_grad_() for x in given)
        outputs, states = function(inputs, memory, weight, bias, keep)
        gradients = torch.autograd.grad((outputs * weights).sum(), (inputs, weight, bias))
        assert not any(state.requires_grad for state in states)
        found.append([outputs.detach(), *states, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_without_new_episodes_the_layers_are_torchs(kind: str, layers: int) -> None:
    torch.manual_seed(0)
    ours = Recurrent(kind, 3, WIDTH, layers)
    torch.manual_seed(0)
    theirs = KINDS[kind][-1](3, WIDTH, layers)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=0, atol=0)
    inputs = torch.randn(7, 4, 3)
    outputs, states = ours(inputs, ours.initial(4))
    expected, last = theirs(inputs)
    near = 7 * bound(3 + WIDTH, size=2)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=near)
    last = last if isinstance(last, tuple) else (last,)
    for name, state in zip(ours.names, last, strict=True):
        torch.testing.assert_close(states[name][-1].transpose(0, 1), state, rtol=0, atol=near)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_lies_between_layers_in_training(kind: str) -> None:
    torch.manual_seed(0)
    ours, theirs = Recurrent(kind, 3, WIDTH, 2, dropout=0.4), KINDS[kind][-1](3, WIDTH, 2, dropout=0.4)
    theirs.load_state_dict(ours.state_dict())
    inputs, near = torch.randn(7, 4, 3), 7 * bound(3 + WIDTH, size=4)
    found = []
    for training in (True, False):
        ours.train(training), theirs.train(training)
        torch.manual_seed(1)
        found.append(ours(inputs, ours.initial(4))[0])
        torch.manual_seed(1)
        torch.testing.assert_close(found[-1], theirs(inputs)[0], rtol=0, atol=near)
    assert not torch.allclose(*found)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_side_by_side_are_each_by_itself(kind: str, dropout: float) -> None:
    torch.manual_seed(0)
    t, b, each = 9, 4, [Recurrent(kind, 3, WIDTH, 2, dropout).double() for _ in range(3)]
    keep, weights = (torch.rand(t, b) > 0.3).double(), torch.randn(3, t, b, WIDTH).double()
    inputs = torch.randn(3, t, b, 3).double()
    memories = [{name: torch.randn(b, 2, WIDTH).double() for name in core.names} for core in each]
    torch.manual_seed(1)
    together = side_by_side(each, list(inputs), memories, keep)
    sum((outputs * w).sum() for (outputs, _), w in zip(together, weights, strict=True)).backward()
    gradients = [[p.grad.clone() for p in core.parameters()] for core in each]
    torch.manual_seed(1)
    for core, x, memory, w, found, (outputs, states) in zip(
        each, inputs, memories, weights, gradients, together, strict=True
    ):
        core.zero_grad()
        alone, then = core(x, memory, keep)
        (alone * w).sum().backward()
        torch.testing.assert_close(outputs, alone, rtol=1e-12, atol=1e-12)
        for name, state in then.items():
            torch.testing.assert_close(states[name], state, rtol=1e-12, atol=1e-12)
        for ours, p in zip(found, core.parameters(), strict=True):
            torch.testing.assert_close(ours, p.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_rows_are_single_steps_one_after_another(kind: str) -> None:
    torch.manual_seed(0)
    core, length, runs = Recurrent(kind, 3, WIDTH, 2), 5, 3
    inputs, starts = torch.randn(runs * length, 3), torch.rand(runs * length) < 0.3
    memory = {name: torch.randn(runs * length, 2, WIDTH) for name in core.names}
    outputs = core.runs(inputs, memory, starts, length)
    for run in range(runs):
        state = {name: value[run * length][None] for name, value in memory.items()}
        for row in range(run * length, (run + 1) * length):
            if starts[row]:
                state = core.initial(1)
            expected, state = core.step(inputs[row][None], state)
            near = length * bound(3 + 2 * WIDTH, size=2)
            torch.testing.assert_close(outputs[row], expected[0], rtol=0, atol=near)


# -- rollouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("critic", ["own", "shared", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_in_sequences_is_evaluated_as_its_steps_were(kind: str, critic: str) -> None:
    model = model_of("PPO", kind, kwargs={"critic_memory": critic}, n_epochs=1, learning_rate=0.0, n_steps=128)
    model.learn(256)
    buffer = model.rollout_buffer
    assert buffer.sequence_length == 8
    assert buffer.episode_starts.reshape(-1, 8)[:, 1:].any(), "episodes must begin within sequences, too"
    for batch in buffer.get(32):
        values, log_prob, _ = model.learner.evaluated(batch)
        near = 8 * bound(4 + WIDTH + 8, size=10)
        torch.testing.assert_close(values.flatten(), batch.old_values, rtol=0, atol=near)
        torch.testing.assert_close(log_prob, batch.old_log_prob, rtol=0, atol=near)


def test_gradients_go_through_a_sequence_and_no_further() -> None:
    model = model_of("PPO", "lstm")
    policy = model.policy
    policy.sequence_length = 4
    obs = torch.randn(8, 4, requires_grad=True)
    memory = {name: torch.zeros(8, 1, WIDTH) for name in policy.initial_memory(1)}
    starts = torch.zeros(8)
    starts[2] = 1
    values = policy.predict_values(obs, starts, **memory)
    gradient = torch.autograd.grad(values[3, 0] + values[7, 0], obs)[0].abs().sum(1)
    assert (gradient > 0).tolist() == [False, False, True, True, True, True, True, True]


def test_rows_of_sequences_start_from_the_stored_recurrent_state() -> None:
    model = model_of("PPO", "gru")
    model.learn(64)
    buffer = model.rollout_buffer
    starts, hidden = buffer.episode_starts.reshape(-1) > 0, buffer.extras["actor_hidden"]
    assert hidden.shape[1:] == (1, WIDTH)
    assert not hidden[starts].any()
    assert hidden[~starts].any(axis=(1, 2)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "rnn"}, "memory must be one of .'gru', 'lstm'., .* got 'rnn'"),
        ({"memory": "lstm", "memory_size": 0}, "memory_size must be a positive integer, got 0"),
        ({"memory": "lstm", "memory_layers": 1.5}, "memory_layers'\\]=1.5 cannot be used: give integers"),
        ({"memory": "lstm", "memory_dropout": 0.5}, "it needs memory_layers of at least 2, got 1"),
        ({"memory": "lstm", "memory_dropout": 1.0, "memory_layers": 2}, "memory_dropout must be a number in"),
        ({"memory": "lstm", "max_seq_len": 0}, "max_seq_len must be a positive integer, got 0"),
        ({"memory": "lstm", "critic_memory": "both"}, "critic_memory must be 'own', 'shared' or 'none', got 'both'"),
        (
            {"memory": "lstm", "critic_memory": "shared", "share_features_extractor": False},
            "critic_memory='shared' lets the value function read the actor's features",
        ),
    ],
)
def test_options_of_memory_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        polyak.PPO("MlpPolicy", "CartPole-v1", device="cpu", policy_kwargs=options)


def test_policies_without_recurrent_state_say_so() -> None:
    with pytest.raises(PolicyError, match=r"memory='lstm', but this algorithm has no recurrent policy. Use PPO"):
        polyak.REINFORCE("MlpPolicy", "CartPole-v1", device="cpu", policy_kwargs={"memory": "lstm"})
    with pytest.raises(ValueError, match=r"n_steps=37 is not possible: .*equal sequences of at most 8 steps|n_steps"):
        model_of("PPO", "lstm", n_steps=37, batch_size=37)
    with pytest.raises(PolicyError, match="memory_size=64 has no effect without memory. Add memory='lstm'"):
        polyak.DQN("MlpPolicy", "CartPole-v1", device="cpu", policy_kwargs={"memory_size": 64})
    with pytest.raises(ValueError, match=r"burn_in'\]=-1 cannot be used: give integers of at least 0"):
        model_of("DQN", "lstm", kwargs={"burn_in": -1})
    with pytest.raises(ValueError, match="n_steps"):
        model_of("DQN", "lstm", n_steps=(1, 3))


# -- replay ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("burn_in", "n_steps"), [(0, 3), (3, 1)])
def test_rows_of_replayed_sequences_are_read_as_if_stepped_through(burn_in: int, n_steps: int) -> None:
    """Against a walk through whole episodes with the same network, from their beginnings: stored memory is exact here,
    since the network has not changed."""
    kwargs = {"burn_in": burn_in, "max_seq_len": 4}
    model = model_of("DQN", "lstm", kwargs=kwargs, n_steps=n_steps, learning_starts=10_000, exploration_initial_eps=1.0)
    model.learn(240)
    buffer, network = model.replay_buffer, model.policy.q_net
    extractor = network.features_extractor
    walked: dict[bytes, tuple[Tensor, dict[str, Tensor]]] = {}
    for env in range(2):
        memory = extractor.initial(1)
        for row in range(buffer.size()):
            obs = torch.from_numpy(buffer.observations[row, env])[None]
            features, memory = extractor.step(Recalled(obs, memory), network)
            walked[obs.numpy().tobytes()] = features[0], memory
            if buffer.dones[row, env]:
                memory = extractor.initial(1)
    rows_of, near = model.learner.rows_of, 300 * bound(4 + WIDTH, size=2)
    assert isinstance(rows_of, SequenceRows)
    for batch, _ in buffer.transitions(64, model.gamma, None, 3):
        rows = rows_of(batch)
        features = network.extract_features(rows.observations, extractor).detach()
        then = network.extract_features(rows.next_observations, extractor)
        assert len(features) == len(then) == len(rows.rewards) == len(rows.actions) == len(rows.weights) == 64 * 4
        picked = batch.observations.gather(1, rows.observations.rows[..., None].expand(-1, -1, 4)).flatten(0, 1)
        for i in range(0, len(features), 7):
            torch.testing.assert_close(features[i], walked[picked[i].numpy().tobytes()][0], rtol=0, atol=near)
        before = rows.next_observations.sequences.rows
        last = batch.observations.gather(1, before[..., None].expand(-1, -1, 4)).flatten(0, 1)
        after = rows.next_observations.observations.flatten(0, 1)
        for i in range(0, len(then), 7):
            memory = walked[last[i].numpy().tobytes()][1]
            expected, _ = extractor.step(Recalled(after[i][None], memory), network)
            torch.testing.assert_close(then[i], expected[0], rtol=0, atol=near)


def test_rows_of_a_short_episode_count_more_than_once() -> None:
    valid = torch.tensor(
        [[True, True, True, True, True], [False, True, True, True, False], [True, True, True, False, False]]
    )
    column = torch.arange(15.0).view(3, 5)
    batch = Transition(column[..., None], column[..., None], column, column[..., None] + 100, column, torch.ones(3))
    batch = batch._replace(valid=valid, extras={"hidden": column[..., None]})
    rows = SequenceRows(2, 3, 1, ("hidden",))(batch)
    assert rows.rewards.view(3, 3).tolist() == [[2, 3, 4], [7, 8, 7], [12, 12, 12]]
    assert rows.next_observations.observations.flatten().tolist() == [102, 103, 104, 107, 108, 107, 112, 112, 112]
    assert rows.observations.keep.tolist() == [[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert rows.observations.memory["hidden"].flatten().tolist() == [0, 5, 10]


def test_no_gradient_goes_through_the_burn_in() -> None:
    model = model_of("DQN", "gru", kwargs={"burn_in": 2, "max_seq_len": 3}, learning_starts=10_000)
    model.learn(100)
    batch, _ = next(iter(model.replay_buffer.transitions(16, 0.99, None, 1)))
    obs = batch.observations.requires_grad_()
    rows = model.learner.rows_of(batch)
    q = model.policy.q_net(rows.observations)
    gradient = torch.autograd.grad(q.sum(), obs)[0].abs().sum((0, 2))
    assert (gradient > 0).tolist() == [False, False, True, True, True]


def test_priorities_of_sequences() -> None:
    errors = torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0, 6.0])
    torch.testing.assert_close(sequence_errors(errors, 2), torch.tensor([0.9 * 3 + 0.1 * 2, 0.9 * 6 + 0.1 * 2]))
    assert sequence_errors(errors, 6) is errors


# -- acting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, k in EACH if n not in ("A2C", "TRPO", "C51")])
def test_numpy_acts_as_torch(name: str, kind: str, layers: int) -> None:
    model = model_of(name, kind, kwargs={"memory_layers": layers})
    arrays, torchs = Actor(model.policy), Actor(model.policy)
    torchs._decide = Eager(model.policy)  # type: ignore[assignment]
    arrays.begin(3)
    rng = np.random.default_rng(0)
    near = 12 * bound(30, size=3)
    for step in range(12):
        obs = rng.standard_normal((3, *model.observation_space.shape)).astype(np.float32)
        starts = rng.random(3) < 0.2
        results = []
        for actor in (arrays, torchs):
            torch.manual_seed(step)
            results.append(actor.act(obs, starts))
        ours, theirs = results
        if isinstance(model.action_space, spaces.Box):
            np.testing.assert_allclose(ours.actions, theirs.actions, rtol=0, atol=near)
        else:
            np.testing.assert_array_equal(ours.actions, theirs.actions)
        assert ours.extras.keys() == theirs.extras.keys() == model.policy.initial_memory(1).keys()
        for key, before in ours.extras.items():
            np.testing.assert_allclose(before, theirs.extras[key], rtol=0, atol=near)
    assert arrays._decide.reason is None


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_predict_hands_its_memory_on(name: str, kind: str) -> None:
    model = model_of(name, kind)
    obs = np.random.default_rng(0).standard_normal((6, 2, *model.observation_space.shape)).astype(np.float32)
    state, states = None, []
    for t in range(6):
        _, state = model.predict(obs[t], state, np.array([False, t == 3]), deterministic=True)
        assert [part.shape for part in state] == [(1, 2, WIDTH)] * (2 if kind == "lstm" else 1)
        states.append(state[0])
    again = None
    for t in range(3, 6):  # the second environment's new episode
        _, again = model.predict(obs[t], again, deterministic=True)
    np.testing.assert_array_equal(again[0][:, 1], states[-1][:, 1])
    assert not np.array_equal(again[0][:, 0], states[-1][:, 0])
    one, alone = model.predict(obs[0, 0], deterministic=True)
    assert np.shape(one) == model.action_space.shape
    np.testing.assert_allclose(alone[0][:, 0], states[0][:, 0], rtol=0, atol=bound(30, size=3))
    with pytest.raises(ValueError, match=r"state has the wrong shape: .* is .* for a batch of 1 observations"):
        model.predict(obs[0, :1], state)


# -- whole models ------------------------------------------------------------------------------------------------------


class Doors(World):
    """Which of four doors may be opened changes at every step, and all others are locked."""

    observation_space, action_space, length = spaces.Box(-1, 1, (3,)), spaces.Discrete(4), 12

    def action_masks(self) -> np.ndarray:
        return self.open

    def look(self) -> np.ndarray:
        self.open = self.np_random.random(4) < 0.5
        self.open[self.np_random.integers(4)] = True
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def act(self, action: Any) -> float:
        assert self.open[action], "locked"
        return 1.0


@pytest.mark.parametrize("name", one_of_each(["PPO", "A2C", "TRPO", "DQN", "Rainbow"], "PPO", "Rainbow"))
def test_memory_goes_with_masks(name: str) -> None:
    model = model_of(name, "lstm", env=DummyVecEnv([Doors, Doors]))
    model.learn(200)  # a locked door would raise
    masks = np.array([[False, True, False, False]] * 2)
    actions, _ = model.predict(np.zeros((2, 3), np.float32), action_masks=masks)
    assert actions.tolist() == [1, 1]


def test_velocities_are_masked() -> None:
    env = MaskVelocityWrapper(gym.make("CartPole-v1"))
    obs, _ = env.reset(seed=0)
    assert obs[[1, 3]].tolist() == [0, 0]
    assert obs[[0, 2]].all()
    with pytest.raises(ValueError, match="knows no velocities of Acrobot"):
        MaskVelocityWrapper(gym.make("Acrobot-v1"))
    assert MaskVelocityWrapper(gym.make("Acrobot-v1"), [4, 5]).reset(seed=0)[0][[4, 5]].tolist() == [0, 0]
    with pytest.raises(ValueError, match="no entries of the observations"):
        MaskVelocityWrapper(gym.make("CartPole-v1"), [4])


@pytest.mark.parametrize(("name", "kind"), TRACED)
def test_traced_it_equals_eager(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)  # the graph runs operation by operation
    compare_with_eager(name, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("PPO", "lstm"), ("PPO", "gru"), ("DQN", "lstm"), ("SAC", "gru")])
def test_compiled_it_equals_eager(name: str, kind: str) -> None:
    compare_with_eager(name, kind)


def compare_with_eager(name: str, kind: str) -> None:
    eager, compiled = (model_of(name, kind, learning_rate=1e-3, compile=choice).learn(128) for choice in (False, True))
    assert compiled.engine.status == "compiled"
    assert eager.learner.steps == compiled.learner.steps > 0
    near = drift(eager.learner.steps, 1e-3, 32 + 8 * (4 + WIDTH) + 8)  # rows, a sequence's steps, the hidden layer
    for key, tensor in eager.learner.networks().items():
        theirs = compiled.learner.networks()[key]
        torch.testing.assert_close(theirs, tensor, rtol=0, atol=near, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize(("algorithm", "continuous"), [("SAC", True), ("DQN", False)])
def test_replayed_sequences_pursue_one_goal(algorithm: str, continuous: bool) -> None:
    env = BitFlippingEnv(n_bits=4, continuous=continuous, max_steps=4)
    model = getattr(polyak, algorithm)(
        "MultiInputPolicy",
        env,
        seed=0,
        learning_starts=40,
        batch_size=16,
        buffer_size=200,
        replay_buffer_class=polyak.HerReplayBuffer,
        policy_kwargs={"net_arch": [8], "memory": "gru", "memory_size": 4, "max_seq_len": 3, "burn_in": 2},
        device="cpu",
    ).learn(60)
    batch = model.replay_buffer.sample(16)
    goals, valid = batch.observations["desired_goal"], batch.valid
    assert goals.shape[:2] == valid.shape == (16, 5)
    first = goals.gather(1, valid.int().argmax(1).view(-1, 1, 1).expand(-1, 1, goals.shape[2]))
    assert torch.equal(goals * valid[..., None], first * valid[..., None])


def test_sequences_of_ones_own_are_refused() -> None:
    with pytest.raises(ValueError, match=r"replay_buffer_kwargs\['reduce'\]"):
        polyak.DQN(
            "MlpPolicy",
            "CartPole-v1",
            replay_buffer_kwargs={"reduce": NStep(2, 0.9)},
            policy_kwargs={"memory": "lstm"},
            device="cpu",
        )
