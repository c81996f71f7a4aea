"""Which backend acts is the policy's to say."""

import numpy as np
import pytest

from polyak import PPO
from polyak.nn.backends.compiled import Compiled
from polyak.nn.backends.eager import Eager
from polyak.nn.backends.numpy import Numpy


def model(**options):
    return PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, seed=0, device="cpu", **options)


def test_a_policy_is_stepped_through_where_that_is_asked() -> None:
    ours, theirs = model(), model()
    theirs.policy.backend = "eager"
    calls = []
    decide = theirs.policy.decide
    theirs.policy.decide = lambda *args: calls.append(1) or decide(*args)  # type: ignore[method-assign]
    for one in (ours, theirs):
        one.set_random_seed(1)
        one.learn(32)
    assert isinstance(ours.runner.actor._decide, Numpy)
    assert ours.runner.actor._decide.reason is None
    assert isinstance(theirs.runner.actor._decide, Eager)
    assert len(calls) == 32
    for name, tensor in ours.learner.networks().items():
        # the same actions, so that the same is learned from them, to rounding
        np.testing.assert_allclose(tensor, theirs.learner.networks()[name], atol=1e-6)


def test_the_choice_holds_from_the_next_rollout_on() -> None:
    one = model()
    one.learn(16)
    one.policy.backend = "eager"
    one.learn(16)
    assert isinstance(one.runner.actor._decide, Eager)


def test_an_unknown_backend_is_refused() -> None:
    one = model()
    one.policy.backend = "fortran"
    with pytest.raises(ValueError, match=r"backend must be one of \['compiled', 'eager', 'numpy'\], got 'fortran'"):
        one.learn(16)


@pytest.mark.slow
def test_a_compiled_policy_chooses_the_same_actions() -> None:
    ours, theirs = model(), model()
    theirs.policy.backend = "compiled"
    for one in (ours, theirs):
        one.set_random_seed(1)
        one.learn(16)
    assert isinstance(theirs.runner.actor._decide, Compiled)
    np.testing.assert_array_equal(ours.rollout_buffer.actions, theirs.rollout_buffer.actions)
