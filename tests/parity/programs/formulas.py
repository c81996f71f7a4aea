"""Schedules, noise, distributions and small functions."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
    kl_divergence,
    make_proba_distribution,
)
from stable_baselines3.common.envs import BitFlippingEnv, IdentityEnv, IdentityEnvBox, SimpleMultiObsEnv
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from stable_baselines3.common.preprocessing import (
    get_action_dim,
    get_flattened_obs_dim,
    get_obs_shape,
    is_image_space,
    maybe_transpose,
    preprocess_obs,
)
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.utils import (
    ConstantSchedule,
    FloatSchedule,
    LinearSchedule,
    constant_fn,
    explained_variance,
    get_linear_fn,
    get_schedule_fn,
    is_vectorized_observation,
    polyak_update,
    safe_mean,
    set_random_seed,
)


def schedules() -> Any:
    """Values along the way, types and representations."""
    points = (1.0, 0.75, 0.5, 0.25, 0.0)
    made = {
        "constant": ConstantSchedule(3.0),
        "linear": LinearSchedule(1.0, 0.1, 0.5),
        "float": FloatSchedule(2),
        "function": FloatSchedule(lambda progress: np.float32(progress)),
        "old linear": get_linear_fn(1.0, 0.2, 0.3),
        "old constant": constant_fn(0.5),
        "old": get_schedule_fn(7),
    }
    values = {name: [schedule(point) for point in points] for name, schedule in made.items()}
    types = {name: type(schedule(0.5)).__name__ for name, schedule in made.items()}
    return [values, types, repr(made["linear"]), repr(made["float"]), repr(made["constant"])]


def noise() -> Any:
    """Noise with a seed, and after a reset."""
    np.random.seed(3)
    normal = NormalActionNoise(np.zeros(2), 0.5 * np.ones(2))
    brown = OrnsteinUhlenbeckActionNoise(np.zeros(2), 0.5 * np.ones(2), theta=0.2, dt=0.1, initial_noise=np.ones(2))
    drawn = [normal() for _ in range(3)] + [brown() for _ in range(3)]
    brown.reset()
    return [drawn, brown(), repr(normal), repr(brown), normal().dtype]


def vectorised_noise() -> Any:
    """One noise for each environment."""
    np.random.seed(3)
    many = VectorizedActionNoise(OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1)), 3)
    first = many()
    many.reset([0, 2])
    return [first, many(), many.n_envs, len(many.noises), type(many.base_noise).__name__]


def seeded() -> Any:
    """set_random_seed seeds Python, NumPy and PyTorch."""
    import random

    set_random_seed(12)
    return [random.random(), np.random.rand(2), torch.rand(2)]


def small_functions() -> Any:
    """Means, variances, averages of parameters, shapes."""
    source, target = [torch.ones(2), torch.zeros(1)], [torch.zeros(2), torch.ones(1)]
    polyak_update(source, target, 0.25)
    box = spaces.Box(-1, 1, (3,), np.float32)
    picture = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    dictionary = spaces.Dict({"a": box, "n": spaces.Discrete(4)})
    return {
        "safe_mean": [safe_mean([1, 2]), safe_mean([])],
        "explained": [
            explained_variance(np.array([1.0, 2.0]), np.array([1.0, 3.0])),
            explained_variance(np.ones(2), np.ones(2)),
        ],
        "polyak": target,
        "dims": [
            get_action_dim(space)
            for space in (box, spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(5))
        ],
        "flat": [get_flattened_obs_dim(space) for space in (box, spaces.Discrete(4), spaces.MultiDiscrete([2, 3]))],
        "shape": [get_obs_shape(box), get_obs_shape(spaces.Discrete(4)), get_obs_shape(dictionary)],
        "image": [is_image_space(picture), is_image_space(box), is_image_space(picture, check_channels=True)],
        "transposed": maybe_transpose(np.zeros((36, 36, 3), np.uint8), spaces.Box(0, 255, (3, 36, 36), np.uint8)).shape,
        "vectorised": [
            is_vectorized_observation(np.zeros(3), box),
            is_vectorized_observation(np.zeros((2, 3)), box),
            is_vectorized_observation(np.array(1), spaces.Discrete(3)),
        ],
    }


def preprocessed() -> Any:
    """What networks get of observations."""
    picture = torch.full((1, 3, 2, 2), 51, dtype=torch.uint8)
    return [
        preprocess_obs(picture, spaces.Box(0, 255, (3, 2, 2), np.uint8)),
        preprocess_obs(picture, spaces.Box(0, 255, (3, 2, 2), np.uint8), normalize_images=False),
        preprocess_obs(torch.tensor([2]), spaces.Discrete(4)),
        preprocess_obs(torch.tensor([[1, 2]]), spaces.MultiDiscrete([2, 3])),
        preprocess_obs(torch.tensor([[1, 0]]), spaces.MultiBinary(2)),
        preprocess_obs(torch.tensor([[1.5]], dtype=torch.float64), spaces.Box(-2, 2, (1,), np.float64)),
    ]


def gaussians() -> Any:
    """Log-probabilities, entropies and modes of Gaussians."""
    mean, log_std = torch.tensor([[0.5, -0.2]]), torch.tensor([0.1, -0.5])
    action = torch.tensor([[0.3, 0.4]])
    normal = DiagGaussianDistribution(2).proba_distribution(mean, log_std)
    squashed = SquashedDiagGaussianDistribution(2).proba_distribution(mean, log_std)
    other = DiagGaussianDistribution(2).proba_distribution(mean + 0.5, log_std)
    return {
        "normal": [normal.log_prob(action), normal.entropy(), normal.mode()],
        "squashed": [squashed.log_prob(action), squashed.entropy(), squashed.mode()],
        "kl": kl_divergence(normal, other),
    }


def categories() -> Any:
    """The same of discrete distributions."""
    logits = torch.tensor([[0.1, 0.7, -0.4, 1.0, 0.2]])
    one = CategoricalDistribution(5).proba_distribution(logits)
    several = MultiCategoricalDistribution([2, 3]).proba_distribution(logits)
    switches = BernoulliDistribution(5).proba_distribution(logits)
    return {
        "one": [one.log_prob(torch.tensor([3])), one.entropy(), one.mode()],
        "several": [several.log_prob(torch.tensor([[1, 2]])), several.entropy(), several.mode()],
        "switches": [switches.log_prob(torch.ones(1, 5)), switches.entropy(), switches.mode()],
    }


def state_dependent() -> Any:
    """gSDE: shapes of its parameters and numbers with a seed."""
    dist = StateDependentNoiseDistribution(2, full_std=True, use_expln=False, squash_output=True)
    net, log_std = dist.proba_distribution_net(latent_dim=3, log_std_init=-1.0)
    torch.manual_seed(1)
    dist.sample_weights(log_std, batch_size=2)
    latent = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    dist.proba_distribution(torch.zeros(2, 2), log_std, latent)
    return [list(log_std.shape), dist.sample(), dist.log_prob(dist.mode()), [list(p.shape) for p in net.parameters()]]


def which_distribution() -> Any:
    """By action space."""
    all_spaces = (spaces.Box(-1, 1, (2,)), spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4))
    return [type(make_proba_distribution(space)).__name__ for space in all_spaces]


def rmsprop() -> Any:
    """Steps of TensorFlow's RMSprop."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = RMSpropTFLike([weight], lr=0.1, alpha=0.9, eps=1e-3, momentum=0.5)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()
        found.append(weight.detach().clone())
    return found


def bundled_environments() -> Any:
    """Environments that come with the library."""
    identity = IdentityEnv(dim=3, ep_length=4)
    identity.action_space.seed(1)
    identity.observation_space.seed(1)
    bits = BitFlippingEnv(n_bits=3, continuous=False, max_steps=3)
    maze = SimpleMultiObsEnv(random_start=False)
    identity.reset()
    steps = [identity.step(0)[1:4] for _ in range(3)]
    start, _ = bits.reset(seed=1)
    after = bits.step(1)
    return {
        "identity": [str(identity.observation_space), str(identity.action_space), len(steps)],
        "box": str(IdentityEnvBox(low=-1, high=2).action_space),
        "bits": [{key: value.shape for key, value in start.items()}, after[1], after[2:4], sorted(after[4])],
        "reward": bits.compute_reward(np.array([[1, 1, 1], [0, 1, 0]]), np.ones((2, 3)), None),
        "maze": [{key: value.shape for key, value in maze.reset()[0].items()}, str(maze.action_space)],
    }
