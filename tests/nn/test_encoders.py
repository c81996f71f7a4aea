"""Preprocessing and features extractors."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak.nn import (
    ActorCriticPolicy,
    BaseFeaturesExtractor,
    CombinedExtractor,
    NatureCNN,
    PolicyError,
    preprocess_obs,
)
from tests.tolerance import bound

IMAGE = spaces.Box(0, 255, (3, 40, 36), np.uint8)
VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def test_an_index_out_of_range_is_an_error():
    with pytest.raises(RuntimeError, match="out of bounds"):
        preprocess_obs(torch.tensor([3]), spaces.Discrete(3))


def test_unsupported_spaces_are_refused():
    with pytest.raises(NotImplementedError, match="Tuple"):
        preprocess_obs(torch.zeros(1), spaces.Tuple([VECTOR]))
    with pytest.raises(NotImplementedError, match=r"Nested observation spaces are not supported.*'inner'"):
        preprocess_obs({}, spaces.Dict({"inner": spaces.Dict({"v": VECTOR})}))


@pytest.mark.parametrize("size", [(36, 36), (36, 50), (84, 84), (60, 97)])
def test_nature_cnn_counts_its_features_as_the_convolutions_do(size):
    cnn = NatureCNN(spaces.Box(0, 255, (4, *size), np.uint8), features_dim=7)
    assert cnn.features_dim == 7
    assert cnn(torch.rand(2, 4, *size)).shape == (2, 7)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (VECTOR, "MlpPolicy"),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), "VecTransposeImage"),
        (spaces.Box(0, 1, (3, 84, 84), np.float32), "normalize_images=False"),
        (spaces.Box(0, 100, (3, 84, 84), np.uint8), "normalize_images=False"),
        (spaces.Box(0, 255, (3, 35, 84), np.uint8), "at least 36 x 36"),
    ],
)
def test_nature_cnn_says_what_it_cannot_read(space, message):
    with pytest.raises(PolicyError, match=message):
        NatureCNN(space)
    with pytest.raises(AssertionError):  # what Stable-Baselines3 raises
        NatureCNN(space)


def test_normalised_images_are_read_as_they_are():
    space = spaces.Box(0, 1, (3, 36, 36), np.float32)
    policy = ActorCriticPolicy(space, spaces.Discrete(2), features_extractor_class=NatureCNN, normalize_images=False)
    seen = []
    policy.features_extractor.cnn[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    obs = np.random.default_rng(0).random((3, 36, 36), dtype=np.float32)
    policy.predict(obs)
    np.testing.assert_array_equal(seen[0][0].numpy(), obs)


def test_each_image_is_standardised_by_itself():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 3, 40, 36), dtype=np.uint8)
    images[3] = 77  # a single colour
    images[4] = 77
    images[4, 0, 0, 0] = 78  # its deviation is below the least one
    seen = []
    policy = ActorCriticPolicy(
        IMAGE, spaces.Discrete(2), features_extractor_class=NatureCNN, features_extractor_kwargs={"standardize": True}
    )
    policy.features_extractor.cnn[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    policy.predict(images)
    pixels = images.astype(np.float64) / 255
    mean = pixels.mean((1, 2, 3), keepdims=True)
    deviation = np.maximum(pixels.std((1, 2, 3), keepdims=True), 1 / np.sqrt(3 * 40 * 36))
    # sums of 4320 numbers of at most 1, in float32, divided by 1 / sqrt(4320) at least
    np.testing.assert_allclose(seen[0].numpy(), (pixels - mean) / deviation, rtol=0, atol=bound(66, size=4320))
    assert np.abs(seen[0][3].numpy()).max() < bound(66, size=4320)


def test_brightness_and_contrast_of_a_standardised_image_do_not_count():
    space = spaces.Dict({"img": IMAGE, "v": VECTOR})
    extractor = CombinedExtractor(space, cnn_output_dim=5, standardize=True)
    images = torch.rand(2, 3, 40, 36)
    obs, other = ({"img": shown, "v": torch.ones(2, 4)} for shown in (images, 0.25 + 0.5 * images))
    torch.testing.assert_close(extractor(obs), extractor(other), rtol=1e-4, atol=1e-4)
    plain = CombinedExtractor(space, cnn_output_dim=5)
    plain.load_state_dict(extractor.state_dict())
    assert (plain(obs) - plain(other)).abs().max() > 1e-3
    with pytest.raises(PolicyError, match="standardize=True, but no entry"):
        CombinedExtractor(spaces.Dict({"v": VECTOR}), standardize=True)


class LateSize(BaseFeaturesExtractor):
    def __init__(self, observation_space, width=3):
        super().__init__(observation_space, features_dim=1)
        self.net = nn.Linear(4, width)
        self._features_dim = np.int64(width)

    def forward(self, observations):
        return self.net(observations)


def test_a_custom_extractor_may_set_its_size_late():
    policy = ActorCriticPolicy(
        VECTOR, spaces.Discrete(2), features_extractor_class=LateSize, features_extractor_kwargs={"width": 9}
    )
    assert policy.features_dim == 9
    assert policy.mlp_extractor.policy_net[0].in_features == 9
    assert policy.predict(np.zeros(4, np.float32))[0].shape == ()


def test_an_extractor_without_a_size_is_refused():
    class Forgetful(BaseFeaturesExtractor):
        def __init__(self, observation_space):
            super().__init__(observation_space)

    with pytest.raises(PolicyError, match=r"Forgetful has features_dim=0.*_features_dim"):
        ActorCriticPolicy(VECTOR, spaces.Discrete(2), features_extractor_class=Forgetful)
    with pytest.raises(PolicyError, match="features_dim must be positive, got -1"):
        BaseFeaturesExtractor(VECTOR, -1)
    with pytest.raises(PolicyError, match="BaseFeaturesExtractor"):
        ActorCriticPolicy(VECTOR, spaces.Discrete(2), features_extractor_class=lambda space: nn.Flatten())
