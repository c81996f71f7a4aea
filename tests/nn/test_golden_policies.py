"""The same parameters, names, shapes, order and outputs as the peers', from a file that they wrote."""

import copy
import json
import pathlib
import pickle
from functools import partial

import numpy as np
import pytest
import torch

from polyak.nn import ActorCriticPolicy, ContinuousPolicy, Policy, QuantileCritic, ValuePolicy, policy_aliases
from tests.nn.policy_cases import ACTIONS, CASES, OBSERVATIONS, SEED, make_observations, outputs, summary
from tests.tolerance import assert_near, bound

GOLDEN = json.loads(pathlib.Path(__file__).with_name("golden_policies.json").read_text(encoding="utf-8"))
ROWS_AND_WIDTHS = 512 + 576 + 512 + 400 + 300  # of the deepest network: convolutions, features, layers
FAMILIES = {
    "ppo": policy_aliases(ActorCriticPolicy),
    "sac": policy_aliases(ContinuousPolicy, actor="squashed_gaussian"),
    "tqc": policy_aliases(ContinuousPolicy, actor="squashed_gaussian", critic=QuantileCritic),
    "td3": policy_aliases(ContinuousPolicy, actor="deterministic"),
    "dqn": policy_aliases(ValuePolicy),
}


def build(name: str) -> Policy:
    family, policy, obs, act, kwargs = CASES[name]
    kwargs = dict(kwargs)
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = getattr(torch.nn, kwargs["activation_fn"])
    torch.manual_seed(SEED)
    return FAMILIES[family][policy](OBSERVATIONS[obs], ACTIONS[act], **kwargs)


def test_the_file_has_every_case():
    assert GOLDEN.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_state_dict_has_the_peers_names_and_shapes_in_its_order(name):
    ours = [(key, shape) for key, shape, *_ in summary(build(name))]
    assert ours == [(key, shape) for key, shape, *_ in GOLDEN[name]["state"]]


@pytest.mark.parametrize("name", [name for name in CASES if "sde" not in name])
def test_equal_seeds_give_the_peers_initial_parameters(name):
    ours = [sums for _, _, *sums in summary(build(name))]
    theirs = [sums for _, _, *sums in GOLDEN[name]["state"]]
    # orthogonal matrices come from as many reflections as they have rows; the sums are over all entries
    entries = np.array([[np.prod(shape), np.prod(shape)] for _, shape, *_ in summary(build(name))])
    rows = np.array([[shape[0] if shape else 1] * 2 for _, shape, *_ in summary(build(name))])
    assert_near(np.array(ours), np.array(theirs), bound(1, rows * np.sqrt(entries) * 2))


@pytest.mark.parametrize("name", [name for name in CASES if "sde" not in name])
def test_equal_parameters_give_the_peers_outputs(name):
    family, _, obs, act, _ = CASES[name]
    ours, theirs = outputs(build(name), family, OBSERVATIONS[obs], ACTIONS[act]), GOLDEN[name]["outputs"]
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=bound(ROWS_AND_WIDTHS, size=5), err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_a_policy_survives_pickling_and_copying_after_use(name):
    family, _, obs, act, _ = CASES[name]
    policy = build(name)
    batch, _ = policy.obs_to_tensor(make_observations(OBSERVATIONS[obs]))
    policy.act(batch)
    answer = partial(outputs, family=family, observation_space=OBSERVATIONS[obs], action_space=ACTIONS[act])
    expected = answer(policy)
    policy.act(batch)
    assert answer(copy.deepcopy(policy)) == expected
    assert answer(pickle.loads(pickle.dumps(policy))) == expected
