"""REDQ and DroQ: draws of subsets and of dropout against enumeration and closed forms, and who is drawn when."""

from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak import REDQ, DroQ
from polyak.algorithms import redq
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.engine.program import Program
from tests.algorithms.rows import parts, seeded, some_batch  # noqa: F401
from tests.tolerance import sampling

CPU = torch.device("cpu")


def model(cls: Any, **options: Any) -> Any:
    small = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 200, "batch_size": 16, "learning_starts": 20}
    return cls("MlpPolicy", "Pendulum-v1", device="cpu", seed=0, **{**small, **options})


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 4, 5])
def test_all_sets_of_critics_are_equally_likely(m: int) -> None:
    counts = dict.fromkeys(combinations(range(5), m), 0)
    for _ in range(4_000):
        counts[tuple(sorted(redq.draw(5, m, CPU).tolist()))] += 1
    chance = 1 / comb(5, m)
    for count in counts.values():
        assert count / 4_000 == pytest.approx(chance, abs=sampling(4_000, (chance * (1 - chance)) ** 0.5))


def test_the_mean_target_is_that_over_all_sets_of_critics() -> None:
    """E over M of min over M, by enumeration of all C(N, M) sets."""
    ours = model(REDQ, n_critics=6, subset=3, ent_coef=0.0)
    ours.actor.mu.weight.data.zero_()
    ours.actor.log_std.weight.data.zero_()
    ours.actor.log_std.bias.data.fill_(-20)  # always the same action, so that only the sets vary
    for critic in ours.critic_target.q_networks:
        critic[-1].bias.data.normal_()
    batch, learner = some_batch(), ours.learner
    with torch.no_grad():
        actions = ours.actor(batch.next_observations, deterministic=True)
        q = ours.critic_target.q_values(batch.next_observations, actions)
    least = torch.stack([q[list(drawn)].amin(0) for drawn in combinations(range(6), 3)])
    targets = torch.stack([learner.td_target(batch, learner.temperature()) for _ in range(300)])
    expected = batch.rewards + 0.9 * least.mean(0)
    slack = 1e-6  # the deviation is exp(-20), about 2e-9, and not 0
    for got, wanted, deviation in zip(targets.mean(0), expected, 0.9 * least.std(0), strict=True):
        assert got.item() == pytest.approx(wanted.item(), abs=sampling(300, deviation.item()) + slack)


def test_no_numbers_are_drawn_where_all_critics_count() -> None:
    ours, batch = model(REDQ, n_critics=3, subset=3), some_batch()
    torch.manual_seed(1)
    target = ours.learner.td_target(batch, ours.learner.temperature())
    drawn = torch.get_rng_state()
    torch.manual_seed(1)
    torch.testing.assert_close(
        target, super(redq.REDQLearner, ours.learner).td_target(batch, ours.learner.temperature())
    )
    assert torch.equal(drawn, torch.get_rng_state())


def test_the_actor_climbs_the_mean_of_all_critics() -> None:
    q, log_prob, alpha = torch.randn(4, 6, requires_grad=True), torch.randn(6), torch.tensor(0.3)
    loss = redq.actor_loss(q, log_prob, alpha)
    each = [(0.3 * log_prob[b] - sum(q[k, b] for k in range(4)) / 4).item() for b in range(6)]
    assert loss.item() == pytest.approx(sum(each) / 6)
    loss.backward()
    torch.testing.assert_close(q.grad, torch.full((4, 6), -1 / 24))


# -- who learns when ---------------------------------------------------------------------------------------------------


def test_actor_and_temperature_learn_once_in_a_while_critics_and_targets_always() -> None:
    ours = model(REDQ, n_critics=3, policy_delay=4)
    for step in range(1, 9):
        before = parts(ours)
        update = ours.learner.update(some_batch())
        moved = {name for name, value in parts(ours).items() if not torch.equal(value, before[name])}
        late = {"actor", "log_ent_coef"} if step % 4 == 0 else set()
        assert moved == {"critic", "critic_target"} | late
        assert ("actor_loss" in update.metrics) == ("ent_coef_loss" in update.metrics) == (step % 4 == 0)


def test_the_target_follows_what_the_step_has_made_of_the_critics() -> None:
    ours = model(REDQ, n_critics=3, tau=0.25)
    expected = parts(ours)["critic_target"]
    for _ in range(3):
        ours.learner.update(some_batch())
        expected = expected.lerp(parts(ours)["critic"], 0.25)
        torch.testing.assert_close(parts(ours)["critic_target"], expected)


@pytest.mark.parametrize("cls", [REDQ, DroQ])
def test_rows_of_weight_zero_teach_the_critics_nothing(cls: Any) -> None:
    weights = torch.tensor([1.0] * 8 + [0.0] * 8)
    batch = some_batch(weights=weights)
    spoilt = batch._replace(rewards=torch.where(weights > 0, batch.rewards, torch.tensor(1e6)))
    results = []
    for rows in (batch, spoilt):
        ours = model(cls)
        torch.manual_seed(1)
        update = ours.learner.update(rows)
        assert update.td_error.shape == (16,)
        assert not update.td_error.requires_grad
        results.append(parts(ours)["critic"])
    assert torch.equal(*results)


@pytest.mark.parametrize("cls", [REDQ, DroQ])
def test_prioritised_and_n_step_replay(cls: Any) -> None:
    ours = model(cls, gradient_steps=2, n_steps=3, replay_buffer_kwargs={"sampler": "prioritized"}).learn(60)
    sample = Transition.from_samples(ours.replay_buffer.sample(64), ours.gamma)
    assert sample.weights.unique().numel() > 1  # errors have become priorities
    assert sample.discounts.min().item() == pytest.approx(0.99**3)
    assert ours._n_updates == 2 * 40


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (REDQ, {"subset": 11}, r"subset=11 cannot be used: there are n_critics=10"),
        (DroQ, {"subset": 3}, r"subset=3 cannot be used: there are n_critics=2"),
        (REDQ, {"policy_kwargs": {"n_critics": 5}}, r"policy_kwargs\['n_critics'\]=5 cannot be used: n_critics=10"),
        (DroQ, {"policy_kwargs": {"dropout_rate": 0.1}}, r"policy_kwargs\['dropout_rate'\]=0.1 cannot be used: drop"),
        (DroQ, {"dropout_rate": 1.0}, r"dropout_rate=1.0 cannot be used: it must be a number in \[0, 1\)"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        model(cls, **options)


def test_the_argument_and_the_policys_may_agree() -> None:
    assert len(model(REDQ, n_critics=5, policy_kwargs={"n_critics": 5}).critic.q_networks) == 5


@pytest.mark.parametrize("cls", [REDQ, DroQ])
def test_a_file_for_stable_baselines3_is_refused(cls: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{cls.__name__} cannot be written for Stable-Baselines3"):
        model(cls).save_sb3(tmp_path / "model")


# -- dropout -----------------------------------------------------------------------------------------------------------


def test_hidden_layers_are_weights_dropout_normalisation_activation() -> None:
    ours = model(DroQ, dropout_rate=0.2, policy_kwargs={"net_arch": [8, 6], "activation_fn": nn.Tanh})
    hidden = [nn.Linear, nn.Dropout, nn.LayerNorm, nn.Tanh]
    for critic in (ours.critic, ours.critic_target):
        for network in critic.q_networks:
            assert [type(layer) for layer in network] == [*hidden, *hidden, nn.Linear]
            assert [layer.p for layer in network if isinstance(layer, nn.Dropout)] == [0.2, 0.2]
    assert not any(isinstance(layer, nn.Dropout | nn.LayerNorm) for layer in ours.actor.modules())


def dropped(critic: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
    """Which units of the first hidden layer are dropped, [K, B, H]."""
    seen: list[Tensor] = []
    hooks = [q[1].register_forward_hook(lambda _, x, y: seen.append((y == 0) & (x[0] != 0))) for q in critic.q_networks]
    critic.q_values(obs, actions)
    for hook in hooks:
        hook.remove()
    return torch.stack(seen)


@pytest.mark.parametrize("name", ["critic", "critic_target"])
def test_units_are_dropped_with_the_given_chance_each_for_itself(name: str) -> None:
    ours = model(DroQ, dropout_rate=0.3, policy_kwargs={"net_arch": [50]})
    ours.policy.set_training_mode(False)
    ours.policy.set_training_mode(True)
    critic = getattr(ours, name)
    obs, actions = torch.randn(400, 3), torch.rand(400, 1)
    first, second = (dropped(critic, obs, actions).float() for _ in range(2))
    one = (0.3 * 0.7) ** 0.5
    assert first.mean().item() == pytest.approx(0.3, abs=sampling(first.numel(), one))
    for other in (second, first.flip(0)):  # another call; the other critic
        both = (first * other).mean().item()
        assert both == pytest.approx(0.09, abs=sampling(first[0].numel(), (0.09 * 0.91) ** 0.5))


def test_values_are_drawn_while_it_learns_and_certain_in_evaluation() -> None:
    ours, batch = model(DroQ, dropout_rate=0.3), some_batch()
    q = {
        name: lambda critic=critic: critic.q_values(batch.observations, batch.actions).detach()
        for name, critic in (("critic", ours.critic), ("critic_target", ours.critic_target))
    }
    for _ in range(2):  # as it is built, and as it is after having been switched
        for values in q.values():
            assert not torch.equal(values(), values())
        ours.policy.set_training_mode(False)
        for values in q.values():
            assert torch.equal(values(), values())
        ours.policy.set_training_mode(True)
    ours.policy.eval()
    assert torch.equal(q["critic_target"](), q["critic_target"]())
    ours.policy.train()
    assert not torch.equal(q["critic_target"](), q["critic_target"]())
    ours.predict(batch.observations.numpy())
    assert torch.equal(q["critic"](), q["critic"]())


def test_the_target_of_a_dropout_network_is_drawn_anew() -> None:
    ours, batch = model(DroQ, dropout_rate=0.3), some_batch()
    targets = []
    for _ in range(2):
        torch.manual_seed(1)
        ours.policy.actor.action_log_prob(batch.next_observations)
        targets.append(ours.critic_target.q_values(batch.next_observations, batch.actions))
        assert not torch.equal(targets[-1], ours.critic_target.q_values(batch.next_observations, batch.actions))
    assert torch.equal(*targets)  # by the seed


def test_the_actor_climbs_values_with_dropout() -> None:
    losses = set()
    for seed in range(3):
        ours = model(DroQ, dropout_rate=0.5, ent_coef=0.0)
        ours.actor.log_std.weight.data.zero_()
        ours.actor.log_std.bias.data.fill_(-20)
        torch.manual_seed(0)
        batch = some_batch()
        torch.manual_seed(seed)
        losses.add(ours.learner.actor_step(batch)["actor_loss"].item())
    assert max(losses) - min(losses) > 1e-3


def test_without_dropout_it_is_redq_with_normalised_critics() -> None:
    ours, batch = model(DroQ, dropout_rate=0.0), some_batch()
    first, second = (ours.critic.q_values(batch.observations, batch.actions) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("cls", [REDQ, DroQ])
def test_other_numbers_are_drawn_at_every_run_of_a_program(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    options: Any = {"dropout_rate": 0.3} if cls is DroQ else {"n_critics": 8, "subset": 1}
    ours = model(cls, compile=True, learning_rate=0.0, tau=0.0, ent_coef=0.0, gradient_steps=1, **options)
    ours.learn(21)
    ours.actor.log_std.weight.data.zero_()
    ours.actor.log_std.bias.data.fill_(-20)
    ours.policy.set_training_mode(True)
    batch = some_batch()
    losses = {ours.learner.update(batch).metrics["critic_loss"].item() for _ in range(10)}
    assert ours.engine.programs
    assert len(losses) > 3
