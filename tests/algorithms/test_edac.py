"""EDAC: the term that keeps critics apart against pairs one by one, and its gradient against finite differences."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyak import EDAC, SAC
from polyak.algorithms import edac
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from tests.algorithms import rows
from tests.algorithms.rows import seeded  # noqa: F401

some_batch = partial(rows.some_batch, width=2)


def model(cls: Any = EDAC, **options: Any) -> Any:
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16}
    small |= {"n_critics": 4} if cls is EDAC else {}
    return cls("MlpPolicy", rows.some_data(low=-1, high=1), device="cpu", seed=0, **{**small, **options})


def cosines(slopes: Tensor) -> Tensor:
    """The sum over all ordered pairs of different critics [B], one pair after another."""
    n = len(slopes)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return sum(nn.functional.cosine_similarity(slopes[i], slopes[j], dim=1) for i, j in pairs)  # type: ignore[return-value]


@pytest.mark.parametrize(("n", "width"), [(2, 1), (4, 3), (10, 6)])
def test_alignment_is_that_of_pairs_one_by_one(n: int, width: int) -> None:
    slopes = torch.randn(n, 5, width, dtype=torch.float64)
    torch.testing.assert_close(edac.alignment(slopes), cosines(slopes) / (n - 1), rtol=0, atol=1e-8)
    same = slopes[:1].expand(n, -1, -1)
    torch.testing.assert_close(edac.alignment(same), torch.full((5,), float(n), dtype=torch.float64))
    weights = torch.rand(5, dtype=torch.float64)
    loss = edac.diversity_loss(slopes, weights)
    assert loss.item() == pytest.approx(0.5 * (weights * cosines(slopes)).mean().item() / (n - 1))


def test_critics_that_are_flat_have_no_direction_and_no_nan() -> None:
    slopes = torch.randn(3, 2, 2)
    slopes[0] = 0
    slopes.requires_grad_()
    loss = edac.alignment(slopes).sum()
    (grad,) = torch.autograd.grad(loss, slopes)
    assert grad.isfinite().all()
    torch.testing.assert_close(edac.alignment(slopes), cosines(slopes[1:]) / 2, rtol=0, atol=1e-6)


def in_double(ours: Any) -> tuple[Any, Transition]:
    critic = ours.critic.double()
    critic._preprocess = lambda obs: obs
    batch = some_batch(4)
    return critic, batch._replace(
        **{name: getattr(batch, name).double() for name in ("observations", "actions", "rewards", "weights")}
    )


def test_slopes_are_those_of_finite_differences() -> None:
    ours = model(policy_kwargs={"net_arch": [6, 5], "activation_fn": nn.Tanh})
    critic, batch = in_double(ours)
    q, slopes = ours.learner.estimates_and_slopes(batch)
    torch.testing.assert_close(q, critic.q_values(batch.observations, batch.actions))
    assert slopes.shape == (4, 4, 2)
    for a in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[a] = 1e-5
        above, below = (critic.q_values(batch.observations, batch.actions + sign * step) for sign in (1, -1))
        torch.testing.assert_close(slopes[:, :, a], (above - below) / 2e-5, rtol=0, atol=1e-8)


def test_the_terms_gradient_by_the_critics_is_that_of_finite_differences() -> None:
    ours = model(policy_kwargs={"net_arch": [4], "activation_fn": nn.Tanh}, n_critics=3)
    critic, batch = in_double(ours)

    def loss(*_: Tensor) -> Tensor:
        return edac.diversity_loss(ours.learner.estimates_and_slopes(batch)[1], batch.weights)

    assert torch.autograd.gradcheck(loss, list(critic.own_parameters()))


def critics(ours: Any) -> Tensor:
    return nn.utils.parameters_to_vector(ours.critic.parameters()).detach().clone()


def test_without_the_term_it_is_sac_with_many_critics() -> None:
    batch = some_batch()
    many = {"net_arch": [8, 8], "n_critics": 4}
    ours, diverse = (model(eta=eta, normalize_observations=False) for eta in (0.0, 1.0))
    updates, learned = [], []
    for each in (ours, model(SAC, policy_kwargs=many), diverse):
        torch.manual_seed(1)
        updates.append(each.learner.update(batch).metrics)
        learned.append(critics(each))
    assert len(ours.critic.q_networks) == 4
    assert torch.equal(learned[0], learned[1])
    assert not torch.equal(learned[0], learned[2])
    added = updates[2]["critic_loss"] - updates[0]["critic_loss"]
    torch.testing.assert_close(added, updates[2]["diversity_loss"], rtol=1e-4, atol=1e-5)


def test_one_critic_cannot_be_kept_apart() -> None:
    with pytest.raises(HyperparameterError, match="eta=1.0 cannot be used: a single critic has no other"):
        model(n_critics=1)
    assert len(model(n_critics=1, eta=0.0).critic.q_networks) == 1
