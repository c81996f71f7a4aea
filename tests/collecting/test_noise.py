import copy
import pickle

import numpy as np
import pytest

from polyak.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from tests.tolerance import bound, sampling

BASES = {
    "normal": lambda: NormalActionNoise(np.array([0.0, 1.0]), np.array([0.3, 0.5])),
    "ou": lambda: OrnsteinUhlenbeckActionNoise(np.array([0.0, 1.0]), np.array([0.3, 0.5]), dt=0.1),
    "ou_started": lambda: OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2), initial_noise=np.array([2.0, -2.0])),
}


class Counting(ActionNoise):
    """A user's own kind of noise."""

    def __init__(self):
        self.n = 0

    def __call__(self):
        self.n += 1
        return np.full(2, self.n, dtype=np.float32)

    def reset(self):
        self.n = 0


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_normal_noise_draws_the_numbers_of_numpys_normal(shape):
    rng = np.random.default_rng(0)
    mean, sigma = rng.normal(size=shape), rng.uniform(size=shape)
    noise = NormalActionNoise(mean, sigma)
    np.random.seed(5)
    expected = [np.random.normal(mean, sigma) for _ in range(20)]
    np.random.seed(5)
    samples = [noise() for _ in range(20)]
    assert all(isinstance(sample, np.ndarray) and sample.shape == shape for sample in samples)
    np.testing.assert_array_equal(samples, np.asarray(expected, np.float32))


def test_ou_noise_is_its_recursion():
    noise = OrnsteinUhlenbeckActionNoise(np.ones(2), np.full(2, 0.3), theta=0.2, dt=0.04)
    np.random.seed(3)
    got = [noise() for _ in range(5)]
    np.random.seed(3)
    x = np.zeros(2)
    for sample in got:
        x = x + 0.2 * (1 - x) * 0.04 + 0.3 * 0.04**0.5 * np.random.normal(size=2)
        np.testing.assert_allclose(sample, x, rtol=0, atol=bound(2))  # rounded to float32 once
    noise.reset()
    np.testing.assert_array_equal(noise.noise_prev, 0)


def test_ou_noise_has_the_variance_and_correlation_of_the_closed_form():
    theta, sigma, dt = 1.5, 0.4, 0.1
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(4000), np.full(4000, sigma), theta, dt)
    np.random.seed(0)
    for _ in range(60):  # (1 - 0.15) ** 60 = 6e-5 of the start is left
        before = noise.noise_prev
        noise()
    decay = 1 - theta * dt
    variance = sigma**2 * dt / (1 - decay**2)
    assert noise.noise_prev.var() == pytest.approx(variance, rel=sampling(2000, 1.0))
    assert np.mean(noise.noise_prev * before) / variance == pytest.approx(
        decay, abs=sampling(4000, (1 + decay**2) ** 0.5)
    )


def test_reset_returns_to_the_initial_noise():
    noise = BASES["ou_started"]()
    noise()
    noise.reset()
    np.testing.assert_array_equal(noise.noise_prev, [2.0, -2.0])
    noise.noise_prev += 1  # the start itself must not change with it
    noise.reset()
    np.testing.assert_array_equal(noise.noise_prev, [2.0, -2.0])


@pytest.mark.parametrize("name", BASES)
def test_vectorized_noise_draws_what_separate_copies_draw(name):
    joint, separate = (VectorizedActionNoise(BASES[name](), 3) for _ in range(2))
    assert len(separate.noises) == 3  # reading them switches to one object per environment
    samples = []
    for noise in (joint, separate):
        np.random.seed(1)
        run = [noise() for _ in range(4)]
        noise.reset([1])
        run += [noise() for _ in range(2)]
        noise.reset()
        samples.append(np.array([*run, noise()]))
    np.testing.assert_array_equal(samples[0], samples[1])
    assert samples[0].shape == (7, 3, 2)
    assert samples[0].dtype == np.float32


def test_the_state_survives_the_switch_to_separate_objects_and_copies():
    noise = VectorizedActionNoise(BASES["ou"](), 3)
    noise()
    twins = [copy.deepcopy(noise), pickle.loads(pickle.dumps(noise)), noise]
    twins[1].noises  # noqa: B018  (reading switches)
    samples = []
    for twin in twins:
        np.random.seed(5)
        samples.append(twin())
    np.testing.assert_array_equal(samples[0], samples[2])
    np.testing.assert_array_equal(samples[1], samples[2])


def test_a_kind_without_joint_form_is_copied():
    base = Counting()
    noise = VectorizedActionNoise(base, 2)
    noise()
    noise.reset([0])
    np.testing.assert_array_equal(noise(), [[1, 1], [2, 2]])
    assert base.n == 0


def test_a_subclass_that_changes_the_samples_is_respected():
    class Shifted(NormalActionNoise):
        def __call__(self):
            return super().__call__() + 100

    assert (VectorizedActionNoise(Shifted(np.zeros(2), np.ones(2)), 4)() > 50).all()


def test_noises_and_base_noise_can_be_set():
    noise = VectorizedActionNoise(BASES["normal"](), 2)
    mine = [NormalActionNoise(np.full(2, 100.0 * i), np.zeros(2)) for i in range(2)]
    noise.noises = mine
    np.testing.assert_array_equal(noise(), [[0, 0], [100, 100]])
    with pytest.raises(ValueError, match=r"one ActionNoise per environment: 2, got 1"):
        noise.noises = mine[:1]
    with pytest.raises(ValueError, match=r"indices \[1\] are not of base_noise's type"):
        noise.noises = [mine[0], Counting()]
    noise.base_noise = Counting()
    np.testing.assert_array_equal(noise(), [[1, 1], [1, 1]])


@pytest.mark.parametrize("n_envs", [0, -1, None, 2.0, True])
def test_bad_number_of_environments(n_envs):
    with pytest.raises(ValueError, match="n_envs must be a positive integer"):
        VectorizedActionNoise(BASES["normal"](), n_envs)


def test_bad_arguments():
    with pytest.raises(TypeError, match="base_noise must be an ActionNoise"):
        VectorizedActionNoise(3, 2)
    with pytest.raises(ValueError, match="sigma must not be negative"):
        NormalActionNoise(np.zeros(2), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="does not fit mean's shape"):
        NormalActionNoise(np.zeros(2), np.ones(3))
    with pytest.raises(ValueError, match="dt must be positive"):
        OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2), dt=0)
    with pytest.raises(ValueError, match="initial_noise must have the shape of mean"):
        OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2), initial_noise=np.zeros(3))
