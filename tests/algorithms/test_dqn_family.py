"""Targets and losses of the DQN family against brute force, and every mixture of its parts."""

import itertools
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import C51, DQN, IQN, QRDQN, Rainbow
from polyak.algorithms import c51
from polyak.experience import Transition
from polyak.experience.samplers import Prioritized, RankBased
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.networks.encoders import NatureCNN
from polyak.nn.networks.noisy import NoisyLinear
from polyak.ops.distributional import clamped_share, midpoints, project
from tests.pairs import one_of_each
from tests.tolerance import bound
from tests.worlds import World

ROWS, ACTIONS = 6, 2  # of a batch; of CartPole
SMALL: dict[str, Any] = {"buffer_size": 300, "learning_starts": 20, "batch_size": 8, "device": "cpu", "seed": 0}


def make(cls: type[Any], **options: Any) -> Any:
    """A small model on CartPole whose two networks differ."""
    kwargs = {"net_arch": [8, 8], **options.pop("policy_kwargs", {})}
    model = cls("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, **{**SMALL, **options})
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.policy.q_net_target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def a_batch() -> Transition:
    rng = np.random.default_rng(0)
    obs, then = (torch.from_numpy(rng.standard_normal((ROWS, 4)).astype(np.float32)) for _ in range(2))
    numbers = torch.from_numpy(rng.standard_normal((3, ROWS)).astype(np.float32))
    discounts = torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9, 0.0])
    actions = torch.tensor([[0], [1], [1], [0], [1], [0]])
    return Transition(obs, actions, numbers[0], then, discounts, numbers[1].abs())


def near(actual: Tensor, expected: Any, terms: int, size: float = 10.0) -> None:
    torch.testing.assert_close(
        actual, torch.as_tensor(np.array(expected), dtype=torch.float32), rtol=0, atol=bound(terms, size)
    )


# -- targets -----------------------------------------------------------------------------------------------------------


def test_double_q_learning_evaluates_what_the_online_network_chooses() -> None:
    model, batch = make(DQN, double=True), a_batch()
    online, lagging = (net(batch.next_observations).detach() for net in (model.q_net, model.q_net_target))
    best = online.argmax(1)
    assert (best != lagging.argmax(1)).any(), "a batch that cannot tell the two apart"
    expected = [r + d * q[a] for r, d, q, a in zip(batch.rewards, batch.discounts, lagging, best, strict=True)]
    near(model.learner.td_target(batch), [float(x) for x in expected], 3)
    plain = make(DQN).learner.td_target(batch)
    near(plain, (batch.rewards + batch.discounts * lagging.amax(1)).tolist(), 3)


def test_munchausen_target_by_its_formula() -> None:
    alpha, tau, least = 0.7, 0.4, -0.8
    model, batch = (
        make(DQN, munchausen=True, munchausen_alpha=alpha, munchausen_temperature=tau, munchausen_clip=least),
        a_batch(),
    )
    q, then = (model.q_net_target(obs).detach().double() for obs in (batch.observations, batch.next_observations))
    expected = []
    for i in range(ROWS):
        log_pi, next_log_pi = (torch.log_softmax(x[i] / tau, 0) for x in (q, then))
        bonus = alpha * min(max(tau * log_pi[batch.actions[i, 0]].item(), least), 0)
        soft = (next_log_pi.exp() * (then[i] - tau * next_log_pi)).sum().item()
        expected.append(batch.rewards[i].item() + bonus + batch.discounts[i].item() * soft)
    near(model.learner.td_target(batch), expected, 20, 10 / tau)


@pytest.mark.parametrize("cls", [DQN, C51, QRDQN])
def test_without_temperature_munchausen_is_q_learning(cls: type[Any]) -> None:
    """As the temperature falls to 0 the policy becomes greedy and its entropy nothing; and there is no bonus."""
    cold = make(cls, munchausen=True, munchausen_alpha=0.0, munchausen_temperature=1e-4)
    batch = a_batch()
    plain = make(cls)
    gaps = plain.q_net_target(batch.next_observations).sort(1).values.diff(dim=1)
    assert gaps.min() > 20e-4, "ties"
    near(cold.learner.td_target(batch), plain.learner.td_target(batch).tolist(), 20)


def test_c51s_target_by_algorithm_1() -> None:
    model, batch = make(C51, n_atoms=7, v_min=-2.0, v_max=1.0), a_batch()
    network = model.q_net_target
    probs = network.logits(batch.next_observations).softmax(1).detach().double().numpy()
    atoms = np.linspace(-2, 1, 7)
    gap = atoms[1] - atoms[0]
    expected = np.zeros((ROWS, 7))
    for i in range(ROWS):
        best = int(np.argmax([(probs[i, :, a] * atoms).sum() for a in range(ACTIONS)]))
        for j in range(7):
            moved = np.clip(batch.rewards[i].item() + batch.discounts[i].item() * atoms[j], -2, 1)
            place = (moved + 2) / gap
            low, high = math.floor(place), math.ceil(place)
            if low == high:
                expected[i, low] += probs[i, j, best]
            else:
                expected[i, low] += probs[i, j, best] * (high - place)
                expected[i, high] += probs[i, j, best] * (place - low)
    near(model.learner.td_target(batch), expected, 7 * 8, 7)


@pytest.mark.parametrize("munchausen", [False, True])
def test_c51s_target_has_the_mean_of_its_samples(munchausen: bool) -> None:
    """On a support that nothing leaves, projection keeps the mean: that of r + gamma V(s'), whatever the policy."""
    options = {"munchausen": True, "munchausen_temperature": 0.5} if munchausen else {}
    model, batch = make(C51, v_min=-40.0, v_max=40.0, **options), a_batch()
    target = model.learner.td_target(batch)
    near(target.sum(1), np.ones(ROWS), 51 * 2)
    then = model.q_net_target(batch.next_observations).detach()
    value = 0.5 * (then / 0.5).logsumexp(1) if munchausen else then.amax(1)
    expected = model.learner.rewards(batch) + batch.discounts * value
    near((target * model.q_net.support).sum(1), expected.tolist(), 51 * 4, 40)


def test_c51s_loss_and_priority() -> None:
    log_probs = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    target = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    near(c51.cross_entropy(log_probs, target), [entropy, math.log(10)], 8)
    near(c51.divergence(log_probs, target), [0, math.log(10)], 8)


@pytest.mark.parametrize("double", [False, True])
def test_qrdqns_target_by_algorithm_1(double: bool) -> None:
    model, batch = make(QRDQN, double=double, policy_kwargs={"n_quantiles": 5}), a_batch()
    quantiles = model.q_net_target.quantiles(batch.next_observations).detach()
    means = (model.q_net if double else model.q_net_target).quantiles(batch.next_observations).mean(1)
    expected = [
        (batch.rewards[i] + batch.discounts[i] * quantiles[i, :, means[i].argmax()]).tolist() for i in range(ROWS)
    ]
    near(model.learner.td_target(batch), expected, 3)


def huber_quantile_loss(quantiles: np.ndarray, targets: np.ndarray, levels: np.ndarray) -> float:
    """Eq. 10 by two loops."""
    total = 0.0
    for quantile, level in zip(quantiles, levels, strict=True):
        for target in targets:
            u = target - quantile
            huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
            total += abs(level - (u < 0)) * huber / len(targets)
    return total


def test_qrdqns_loss_by_its_formula() -> None:
    model, batch = make(QRDQN, policy_kwargs={"n_quantiles": 5}), a_batch()
    q, target = model.learner.predicted(batch).detach(), model.learner.td_target(batch)
    chosen = [q[i, :, batch.actions[i, 0]].numpy() for i in range(ROWS)]
    losses = [huber_quantile_loss(chosen[i], target[i].numpy(), midpoints(5).numpy()) for i in range(ROWS)]
    objective = model.learner.objective(batch, q, target)
    near(objective.td_error, losses, 5 * 5 * 4)
    assert objective.loss.item() == pytest.approx((batch.weights.numpy() * losses).mean(), abs=bound(200, 10))


def test_iqns_step_by_its_formula() -> None:
    """The step's own draws, repeated: levels of the target, of the choice, of the prediction."""
    model, batch = make(IQN, n_levels=4, n_target_levels=3, policy_kwargs={"n_samples": 5}), a_batch()
    network, lagging = model.q_net, model.q_net_target
    torch.manual_seed(3)
    levels = torch.rand(ROWS, 3)
    then = lagging.quantiles(batch.next_observations, levels).detach()
    choice = lagging.quantiles(batch.next_observations, torch.rand(ROWS, 5)).mean(1).argmax(1)
    levels = torch.rand(ROWS, 4)
    q = network.quantiles(batch.observations, levels).detach()
    losses = []
    for i in range(ROWS):
        target = (batch.rewards[i] + batch.discounts[i] * then[i, :, choice[i]]).numpy()
        losses.append(huber_quantile_loss(q[i, :, batch.actions[i, 0]].numpy(), target, levels[i].numpy()))
    torch.manual_seed(3)
    update = model.learner.gradient_step(batch)
    near(update.td_error, losses, 4 * 3 * 8)
    assert update.metrics["loss"].item() == pytest.approx((batch.weights.numpy() * losses).mean(), abs=bound(200, 10))


# -- mixtures ----------------------------------------------------------------------------------------------------------

PARTS = ("double", "dueling", "noisy", "munchausen", "prioritized")
MIXTURES = [
    (cls, {name: True for name, on in zip(PARTS, chosen, strict=True) if on})
    for cls in (DQN, C51, QRDQN, IQN)
    for chosen in itertools.product((False, True), repeat=len(PARTS))
    if sum(chosen) != 3 and (cls is DQN or sum(chosen) != 2)  # what mixes in pairs and all together mixes
]


@pytest.mark.parametrize(("cls", "parts"), MIXTURES, ids=lambda x: "+".join(x) if isinstance(x, dict) else x.__name__)
def test_any_mixture_trains_or_says_why_not(cls: type[Any], parts: dict[str, bool]) -> None:
    if parts.keys() >= {"double", "munchausen"}:
        with pytest.raises(HyperparameterError, match="double=True cannot be used: the softmax"):
            make(cls, **parts)
        return
    model = make(cls, train_freq=4, n_steps=1 if "munchausen" in parts else (1, 3), **parts)
    before = {name: p.clone() for name, p in model.policy.q_net.named_parameters()}
    model.learn(48)
    for name, parameter in model.policy.q_net.named_parameters():
        assert torch.isfinite(parameter).all()
        assert not torch.equal(parameter, before[name]), f"{name} is not trained"
    noisy = any(isinstance(module, NoisyLinear) for module in model.policy.modules())
    assert noisy == ("noisy" in parts)
    assert (model.exploration_rate == 0) == noisy
    obs = np.random.default_rng(1).standard_normal((64, 4))
    again = [model.predict(obs, deterministic=True)[0] for _ in range(2)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("cls", [DQN, C51, QRDQN, IQN])
def test_dueling_by_the_maximum_trains(cls: type[Any]) -> None:
    model = make(cls, dueling="max", train_freq=4)
    before = {name: p.clone() for name, p in model.policy.q_net.named_parameters()}
    model.learn(48)
    assert all(not torch.equal(p, before[name]) for name, p in model.policy.q_net.named_parameters())
    assert any(getattr(module, "by_max", False) for module in model.policy.q_net.modules())


def test_rainbow_is_all_of_them() -> None:
    model = Rainbow("MlpPolicy", "CartPole-v1", **SMALL)
    assert all(getattr(model, name) for name in PARTS if name != "munchausen")
    assert (model.n_steps, model.n_atoms, model.v_min, model.v_max) == (3, 51, -10, 10)
    sampler = model.replay_buffer.sampler
    assert (type(sampler), sampler.alpha, sampler.beta, sampler.final_beta) == (Prioritized, 0.5, 0.4, 1.0)
    assert model.learner.optimizers["policy"].param_groups[0]["eps"] == 1.5e-4


def test_noise_is_drawn_where_actions_need_not_be_deterministic() -> None:
    model = make(DQN, noisy=True, sigma0=5.0)
    obs = np.zeros((1, 4))
    drawn = {int(model.predict(obs)[0][0]) for _ in range(100)}
    assert drawn == {0, 1}
    assert len({int(model.predict(obs, deterministic=True)[0][0]) for _ in range(100)}) == 1


def test_online_and_target_network_draw_noise_of_their_own() -> None:
    model, batch = make(DQN, noisy=True), a_batch()
    model.policy.q_net_target.load_state_dict(model.policy.q_net.state_dict())
    calls: list[Tensor] = []
    for network in (model.policy.q_net, model.policy.q_net_target):
        network.register_forward_hook(lambda module, args, output: calls.append(output.detach()))
    batch = batch._replace(next_observations=batch.observations)
    model.learner.gradient_step(batch)
    assert len(calls) == 2
    assert not torch.equal(*calls)


def test_after_convolutions_the_special_layers_take_the_place_of_the_extractors_own() -> None:
    from polyak.envs.testing import FakeImageEnv

    env = FakeImageEnv(n_channels=1, screen_height=40, screen_width=40)
    plain = DQN("CnnPolicy", env, buffer_size=5, device="cpu").policy
    assert (plain.net_arch, plain.q_net.features_dim) == ([], 512)
    for cls, options in ((DQN, {"dueling": True}), (DQN, {"noisy": True}), (IQN, {}), (Rainbow, {})):
        policy = cls("CnnPolicy", env, buffer_size=5, device="cpu", **options).policy
        assert isinstance(policy.q_net.features_extractor, NatureCNN)
        assert policy.net_arch == [512]
        assert policy.q_net.features_dim == 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noisy": True, "exploration_final_eps": 0.1}, "exploration_final_eps=0.1 .* noisy=True"),
        ({"sigma0": 0.1}, "sigma0=0.1 .* Pass noisy=True"),
        ({"dueling": "mean"}, "dueling='mean' cannot be used: it must be True or False, or 'max'"),
        ({"munchausen_alpha": 0.1}, "munchausen_alpha=0.1 .* Pass munchausen=True"),
        ({"munchausen": True, "n_steps": 3}, "n_steps=3 .* Use n_steps=1"),
        ({"n_steps": (3, 2)}, r"n_steps=\(3, 2\) .* write \(least, most\)"),
        ({"prioritized": {"kind": "best"}}, "prioritized=.*kind must be one of"),
        ({"prioritized": {"alpha": -1}}, "prioritized=.*alpha must be at least 0"),
        ({"prioritized": {"power": 1}}, "prioritized=.*unexpected keyword argument 'power'"),
        ({"prioritized": True, "replay_buffer_kwargs": {"sampler": "uniform"}}, "names a sampler, too"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        make(DQN, **options)


def test_a_range_of_atoms_must_be_one() -> None:
    with pytest.raises(HyperparameterError, match="v_min=3.0 cannot be used: it must lie below v_max=3.0"):
        make(C51, v_min=3.0, v_max=3.0)


# -- prioritised replay ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["proportional", "rank"])
def test_priorities_follow_the_errors_and_corrections_the_progress(kind: str) -> None:
    model = make(DQN, prioritized={"kind": kind, "beta": 0.4}, train_freq=1)
    model.learn(200)
    sampler = model.replay_buffer.sampler
    assert isinstance(sampler, RankBased if kind == "rank" else Prioritized)
    assert sampler.beta == pytest.approx(1, abs=2 / 200)
    known = sampler.kinds if kind == "rank" else sampler.tree.leaves
    assert len(set(np.array(known)[:200].tolist())) > 5


def blind_cliffwalk(n: int, prioritized: bool, seed: int) -> int:
    """Updates of tabular Q-learning until its error is below 1e-3: Schaul et al. 2016, figure 1 and appendix B.1.

    A walk of n states in which one of two actions is wrong and ends it; only the last right one is rewarded. The replay
    memory holds what all 2**n sequences of actions bring, each up to its end.
    """
    rng = np.random.default_rng(seed)
    gamma, eta = 1 - 1 / n, 0.25
    truth = np.zeros((n, 2))
    truth[:, 1] = gamma ** np.arange(n - 1, -1, -1)
    sequences = [[int(bit) for bit in np.binary_repr(k, n)] for k in rng.permutation(2**n)]
    memory = [(s, a) for bits in sequences for s, a in enumerate(bits[: (bits + [0]).index(0) + 1])]
    q = rng.normal(0, 0.1, (n, 2))
    sampler = Prioritized(alpha=1.0, beta=0.0, eps=1e-8).prepare(len(memory), 1)
    sampler.seed(seed)
    sampler.include(np.arange(len(memory)))
    for updates in itertools.count():
        if ((q - truth) ** 2).mean() < 1e-3:
            return updates
        cell = sampler.draw(1, len(memory), None)[0][0] if prioritized else rng.integers(len(memory))
        s, a = memory[cell]
        reward, then = float(a == 1 and s == n - 1), q[s + 1].max() if a == 1 and s < n - 1 else 0.0
        error = reward + gamma * then - q[s, a]
        q[s, a] += eta * error
        sampler.update_priorities(np.array([cell]), np.array([error]))
    raise AssertionError


@pytest.mark.slow
def test_prioritised_replay_needs_a_fraction_of_the_updates_on_the_blind_cliffwalk() -> None:
    counts = np.median(
        [[blind_cliffwalk(8, prioritized, seed) for prioritized in (False, True)] for seed in range(7)], 0
    )
    assert counts[0] / counts[1] >= 4, counts


# -- clamping ----------------------------------------------------------------------------------------------------------


def test_clamped_share_counts_what_the_projection_moves_to_an_end() -> None:
    support = torch.linspace(-10, 10, 5, dtype=torch.float64)
    rewards = torch.tensor([-1.0, -1.0, 10.0, 0.0, 3.0], dtype=torch.float64)
    discounts = torch.tensor([0.99, 0.0, 0.0, 0.99, 0.99], dtype=torch.float64)
    probs = torch.eye(5, dtype=torch.float64)[[0, 0, 4, 4, 4]]
    target = project(probs, rewards[:, None] + discounts[:, None] * support, support)
    # The first row falls below the end and the last above it; 10 exactly, and 0.99 * 10, do not.
    assert clamped_share(target, rewards, discounts, support).item() == pytest.approx(2 / 5)


class Costly(World):
    """Every step costs 1, for a hundred steps."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    length, truncates, pays = 100, True, -1.0

    def look(self) -> np.ndarray:
        return np.full(1, self.t / 100, np.float32)


@pytest.mark.parametrize(("v_min", "warns"), [(-10.0, True), pytest.param(-100.0, False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", one_of_each([C51, Rainbow], C51))
def test_returns_outside_of_the_atoms_are_warned_of(
    algorithm: type[C51], v_min: float, warns: bool, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c51, "_LOOK_EVERY", 200)
    small = {"net_arch": [16]}
    settings = {"learning_starts": 100, "train_freq": 1, "target_update_interval": 10, "learning_rate": 1e-2, "seed": 0}
    model = algorithm("MlpPolicy", Costly(), v_min=v_min, v_max=0.0, policy_kwargs=small, device="cpu", **settings)
    model.learn(320)
    messages = [str(warning.message) for warning in recwarn if "lies outside of its atoms" in str(warning.message)]
    assert len(messages) == warns
    if warns:
        assert "v_min=-10 to v_max=0" in messages[0]
        assert "Recent episodes returned -100 to -100" in messages[0]
