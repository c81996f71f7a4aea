"""Named policies and policy_kwargs."""

import pickle
import re

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

from polyak.nn import (
    ActorCriticPolicy,
    BaseFeaturesExtractor,
    CombinedExtractor,
    ContinuousPolicy,
    FlattenExtractor,
    NatureCNN,
    PolicyError,
    ValuePolicy,
    policy_aliases,
)
from tests.nn.policy_cases import ACTIONS, DICT, IMAGE, VECTOR

BOX, DISCRETE = ACTIONS["box"], ACTIONS["discrete"]
ALIASES = {
    "ppo": (policy_aliases(ActorCriticPolicy), DISCRETE),
    "sac": (policy_aliases(ContinuousPolicy, actor="squashed_gaussian", net_arch=[256, 256]), BOX),
    "td3": (policy_aliases(ContinuousPolicy, actor="deterministic"), BOX),
    "dqn": (policy_aliases(ValuePolicy), DISCRETE),
}


@pytest.mark.parametrize("family", ALIASES)
@pytest.mark.parametrize(
    ("name", "space", "right"),
    [
        ("CnnPolicy", VECTOR, "MlpPolicy"),
        ("CnnPolicy", DICT, "MultiInputPolicy"),
        ("CnnPolicy", spaces.Discrete(3), "MlpPolicy"),
        ("MlpPolicy", DICT, "MultiInputPolicy"),
        ("MultiInputPolicy", VECTOR, "MlpPolicy"),
        ("MultiInputPolicy", IMAGE, "CnnPolicy"),
    ],
)
def test_a_policy_for_another_space_names_both_and_the_right_one(family, name, space, right):
    aliases, act = ALIASES[family]
    with pytest.raises(PolicyError) as error:
        aliases[name](space, act)
    assert all(part in str(error.value) for part in (name, str(space), f"'{right}'"))


@pytest.mark.parametrize("family", ALIASES)
def test_the_name_decides_the_extractor(family):
    aliases, act = ALIASES[family]
    for name, space, extractor in [
        ("MlpPolicy", VECTOR, FlattenExtractor),
        ("MlpPolicy", IMAGE, FlattenExtractor),
        ("CnnPolicy", IMAGE, NatureCNN),
        ("MultiInputPolicy", DICT, CombinedExtractor),
    ]:
        policy = aliases[name](space, act)
        assert policy.features_extractor_class is extractor
        assert any(type(module) is extractor for module in policy.modules())


@pytest.mark.parametrize(
    ("space", "extractor"), [(VECTOR, FlattenExtractor), (IMAGE, NatureCNN), (DICT, CombinedExtractor)]
)
def test_without_a_name_the_space_decides(space, extractor):
    assert ValuePolicy(space, DISCRETE).features_extractor_class is extractor


class OnlyVector(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, 5)

    def forward(self, observations):
        return observations["vec"]


def test_a_custom_extractor_may_read_any_space():
    policy = ALIASES["ppo"][0]["MlpPolicy"](DICT, DISCRETE, features_extractor_class=OnlyVector)
    assert isinstance(policy.features_extractor, OnlyVector)


@pytest.mark.parametrize(
    ("family", "known", "unknown"),
    [
        ("ppo", ["ortho_init", "share_features_extractor", "squash_output", "log_std_init"], "n_critics"),
        ("sac", ["n_critics", "use_sde", "clip_mean", "use_expln", "log_std_init"], "ortho_init"),
        ("td3", ["n_critics", "share_features_extractor"], "use_sde"),
        ("dqn", ["net_arch", "normalize_images"], "n_critics"),
    ],
)
def test_unknown_policy_kwargs_are_named_with_those_that_exist(family, known, unknown):
    aliases, act = ALIASES[family]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'") as error:
        aliases["MlpPolicy"](VECTOR, act, **{unknown: 1})
    listed = re.findall(r"\w+", str(error.value).split("It knows: ")[1])
    common = ["activation_fn", "features_extractor_class", "features_extractor_kwargs", "net_arch", "normalize_images"]
    assert all(name in listed for name in known + common)
    assert not any(name in listed for name in ("self", "observation_space", "action_space", "actor", "actor_options"))


def test_a_misspelt_argument_is_corrected():
    with pytest.raises(TypeError, match="Did you mean 'net_arch'"):
        ALIASES["dqn"][0]["MlpPolicy"](VECTOR, DISCRETE, net_archi=[64])
    with pytest.raises(TypeError, match="'net_archi'"):
        ContinuousPolicy(VECTOR, BOX, net_archi=[64])
    with pytest.raises(TypeError, match="'use_sde'"):
        ContinuousPolicy(VECTOR, BOX, actor="deterministic", use_sde=True)


def test_an_algorithm_s_defaults_give_way_to_policy_kwargs():
    one = policy_aliases(ContinuousPolicy, actor="deterministic", n_critics=1)["MlpPolicy"]
    assert len(one(VECTOR, BOX).critic.q_networks) == 1
    assert len(one(VECTOR, BOX, n_critics=3).critic.q_networks) == 3


def test_recipes_can_be_pickled():
    recipe = pickle.loads(pickle.dumps(ALIASES["sac"][0]["MlpPolicy"]))
    assert recipe(VECTOR, BOX, net_arch=[5]).actor.latent_pi[0].out_features == 5


@pytest.mark.parametrize("family", ALIASES)
def test_activation_fn_reaches_every_network(family):
    aliases, act = ALIASES[family]
    policy = aliases["MlpPolicy"](VECTOR, act, activation_fn=nn.ELU)
    kinds = {type(m) for m in policy.modules()}
    assert nn.ELU in kinds
    assert not kinds & {nn.ReLU}


def test_options_that_only_state_dependent_exploration_reads_warn_without_it():
    with pytest.warns(UserWarning, match=r"log_std_init=-1, clip_mean=3\.0 has no effect without use_sde=True"):
        ContinuousPolicy(VECTOR, BOX, log_std_init=-1, clip_mean=3.0)
    with pytest.warns(UserWarning, match="full_std=False"):
        ActorCriticPolicy(VECTOR, BOX, full_std=False)


def test_an_unknown_actor_is_refused():
    with pytest.raises(PolicyError, match=r"actor='gauss' is unknown.*squashed_gaussian"):
        ContinuousPolicy(VECTOR, BOX, actor="gauss")


def test_float_images_need_normalize_images_off():
    space = spaces.Box(0, 1, (3, 36, 36), np.float32)
    recipe = ALIASES["dqn"][0]["CnnPolicy"]
    with pytest.raises(PolicyError, match="normalize_images=False"):
        recipe(space, DISCRETE)
    assert isinstance(recipe(space, DISCRETE, normalize_images=False).q_net.features_extractor, NatureCNN)
    nested = spaces.Dict({"img": space})
    multi = ALIASES["dqn"][0]["MultiInputPolicy"]
    assert isinstance(multi(nested, DISCRETE).q_net.features_extractor.extractors["img"], nn.Flatten)
    net = multi(nested, DISCRETE, normalize_images=False).q_net
    assert isinstance(net.features_extractor.extractors["img"], NatureCNN)
