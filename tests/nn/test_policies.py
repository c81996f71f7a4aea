"""Acting, predicting, evaluating, sharing, targets: what the three kinds of policy promise."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak.experience import ReplayBuffer
from polyak.nn import (
    ActorCriticPolicy,
    BaseFeaturesExtractor,
    ContinuousPolicy,
    NatureCNN,
    PolicyError,
    QuantileCritic,
    SquashedGaussianActor,
    ValuePolicy,
)
from polyak.nn.policies.continuous import ContinuousCritic
from polyak.nn.policies.crossq import CrossQActor, CrossQCritic
from polyak.nn.policies.simba import SimBaActor, SimBaCritic
from polyak.ops.updates import polyak_update
from tests.nn.policy_cases import ACTIONS, DICT, IMAGE, OBSERVATIONS, VECTOR, make_actions, make_observations
from tests.tolerance import LIKELY, bound

BOX, DISCRETE = ACTIONS["box"], ACTIONS["discrete"]
GRID = spaces.Box(-3.0, 1.0, (2, 3), np.float32)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def tensors(space, policy, batch=3):
    return policy.obs_to_tensor(make_observations(space, batch))[0]


EVERY = {
    **{f"ppo_{name}": (lambda obs, space=space: ActorCriticPolicy(obs, space)) for name, space in ACTIONS.items()},
    "ppo_grid": lambda obs: ActorCriticPolicy(obs, GRID),
    "ppo_table": lambda obs: ActorCriticPolicy(obs, spaces.MultiDiscrete([[3, 2], [2, 4]])),
    "ppo_sde": lambda obs: ActorCriticPolicy(obs, BOX, use_sde=True),
    "ppo_sde_grid": lambda obs: ActorCriticPolicy(obs, GRID, use_sde=True, squash_output=True),
    "sac": lambda obs: ContinuousPolicy(obs, BOX),
    "sac_grid": lambda obs: ContinuousPolicy(obs, GRID),
    "tqc": lambda obs: ContinuousPolicy(obs, BOX, critic=QuantileCritic, n_quantiles=5),
    "sac_sde": lambda obs: ContinuousPolicy(obs, BOX, use_sde=True),
    "td3": lambda obs: ContinuousPolicy(obs, BOX, actor="deterministic"),
    "td3_grid": lambda obs: ContinuousPolicy(obs, GRID, actor="deterministic"),
    "dqn": lambda obs: ValuePolicy(obs, DISCRETE),
    "dqn_shifted": lambda obs: ValuePolicy(obs, spaces.Discrete(3, start=-1)),
    "ppo_shifted": lambda obs: ActorCriticPolicy(obs, spaces.MultiDiscrete([3, 2], start=[5, -1])),
}


# --- predict --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("deterministic", [True, False])
def test_predict_answers_one_observation_or_a_batch_within_the_space(name, deterministic):
    policy = EVERY[name](VECTOR)
    policy.set_training_mode(True)
    batch = make_observations(VECTOR, 5)
    actions, state = policy.predict(batch, deterministic=deterministic)
    assert not any(module.training for module in policy.modules())
    assert state is None
    assert actions.shape == (5, *policy.action_space.shape)
    action, memory = policy.predict(batch[0], state=(batch,), deterministic=deterministic)
    assert isinstance(action, np.ndarray)
    assert memory[0] is batch
    for one in (action, *actions):
        value = np.int64(one) if one.shape == () else one.astype(policy.action_space.dtype)
        assert policy.action_space.contains(value)
    if deterministic:
        np.testing.assert_allclose(action, actions[0], rtol=0, atol=bound(5 + 2 * 256, size=5))


@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("name", ["ppo_box", "sac", "td3", "dqn"])
def test_predict_reads_every_space(obs, name):
    space = OBSERVATIONS[obs]
    policy = EVERY[name](space)
    batch = make_observations(space, 4)
    single = {key: value[0] for key, value in batch.items()} if isinstance(batch, dict) else batch[0]
    many, one = policy.predict(batch, deterministic=True)[0], policy.predict(single, deterministic=True)[0]
    assert many.shape == (4, *policy.action_space.shape)
    widths = 192 + 512 + 576 + 512 + 2 * 256  # of the convolutions, if there are any, and of the layers
    np.testing.assert_allclose(one, many[0], rtol=0, atol=bound(widths, size=5))


def test_predict_transposes_images_also_inside_a_dict():
    policy = ValuePolicy(IMAGE, DISCRETE)
    batch = make_observations(IMAGE)
    last = np.moveaxis(batch, 1, -1)
    assert torch.equal(policy.obs_to_tensor(last)[0], policy.obs_to_tensor(batch)[0])
    assert policy.obs_to_tensor(last[0])[1] is False
    both = ValuePolicy(DICT, DISCRETE)
    first = make_observations(DICT)
    assert torch.equal(
        both.obs_to_tensor({**first, "img": np.moveaxis(first["img"], 1, -1)})[0]["img"],
        both.obs_to_tensor(first)[0]["img"],
    )


@pytest.mark.parametrize("space", [spaces.Discrete(3), DICT], ids=["discrete", "dict"])
def test_predict_takes_observations_as_a_replay_buffer_has_them(space):
    buffer = ReplayBuffer(8, space, DISCRETE, "cpu")
    policy, seen = ValuePolicy(space, DISCRETE), make_observations(space, 8)
    for i in range(8):
        row = {key: value[i : i + 1] for key, value in seen.items()} if isinstance(seen, dict) else seen[i : i + 1]
        buffer.add(row, row, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    expected = policy.predict(seen, deterministic=True)[0]
    stored = buffer.observations
    stored = {key: value[:, 0] for key, value in stored.items()} if isinstance(stored, dict) else stored[:, 0]
    assert np.array_equal(policy.predict(stored, deterministic=True)[0], expected)
    sampled = buffer.sample(5).observations
    assert policy.predict(sampled)[0].shape == (5,)


def test_predict_does_not_keep_or_change_the_observation():
    policy = ValuePolicy(VECTOR, DISCRETE)
    obs = make_observations(VECTOR)
    tensor, _ = policy.obs_to_tensor(obs)
    tensor.zero_()
    assert obs.any()
    obs.flags.writeable = False
    policy.predict(obs[:, ::-1])


@pytest.mark.parametrize("name", ["ppo_box", "sac", "dqn"])
def test_predict_refuses_what_is_not_an_observation(name):
    policy = EVERY[name](VECTOR)
    good = np.zeros(5, np.float32)
    with pytest.raises(ValueError, match="mixing Gym API"):
        policy.predict((good, {}))
    with pytest.raises(ValueError, match=r"\(4,\).*\(5,\)"):
        policy.predict(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r"\(2, 3, 5\)"):
        policy.predict(np.zeros((2, 3, 5), np.float32))
    with pytest.raises(ValueError, match="an array"):
        policy.predict({"obs": good})
    bad = np.zeros((3, 5), np.float32)
    bad[1, 2], bad[2, 0] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"2 entries that are not finite; the first is nan at index \(1, 2\)"):
        policy.predict(bad)
    bad = np.array([0, 1, -1e300, 0, 1])
    with pytest.raises(ValueError, match=r"1 entries beyond the range of float32.*first is -1e\+300 at index \(2,\)"):
        policy.predict(bad)


def test_predict_refuses_wrong_dicts_by_key():
    policy = ValuePolicy(DICT, DISCRETE)
    good = make_observations(DICT)
    with pytest.raises(ValueError, match=r"missing \['vec'\], unknown \['vek'\]"):
        policy.predict({"img": good["img"], "disc": good["disc"], "vek": good["vec"]})
    with pytest.raises(ValueError, match="a dict with the keys"):
        policy.predict(good["vec"])
    with pytest.raises(ValueError, match="at key 'vec'.*nan"):
        policy.predict({**good, "vec": np.full((3, 5), np.nan, np.float32)})
    with pytest.raises(ValueError, match="'vec'"):
        policy.predict({**good, "vec": np.zeros((3, 6), np.float32)})


@pytest.mark.parametrize("name", ["ppo_box", "sac", "td3"])
def test_predict_reports_weights_that_became_nan(name):
    policy = EVERY[name](VECTOR)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN or infinite"):
        policy.predict(np.zeros(5, np.float32))


# --- units of actions -----------------------------------------------------------------------------------------------


def test_a_bound_without_width_does_not_divide_by_zero():
    policy = ContinuousPolicy(VECTOR, spaces.Box(np.float32([1, -1]), np.float32([1, 1])))
    env = policy.to_env(np.array([[0.3, 0.5]], np.float32))
    np.testing.assert_allclose(env, [[1, 0.5]])
    assert np.isfinite(policy.from_env(env)).all()


def test_discrete_actions_count_from_the_space_s_start():
    policy = ValuePolicy(VECTOR, spaces.Discrete(3, start=-1))
    np.testing.assert_array_equal(policy.to_env(np.array([0, 2])), [-1, 1])
    np.testing.assert_array_equal(policy.from_env(np.array([-1, 1])), [0, 2])


@pytest.mark.parametrize("name", EVERY)
def test_act_gives_network_units_for_a_batch(name):
    policy = EVERY[name](VECTOR)
    for deterministic in (True, False):
        actions = policy.act(tensors(VECTOR, policy), deterministic)
        assert actions.shape == (3, *policy.action_space.shape)
        if policy.squash_output:
            assert actions.abs().max() <= 1
        if isinstance(policy.action_space, spaces.Discrete):
            assert actions.dtype == torch.int64
            assert actions.min() >= 0


def test_scaling_needs_a_box_of_finite_bounds():
    with pytest.raises(PolicyError, match="Box"):
        ValuePolicy(VECTOR, DISCRETE).scale_action(np.zeros(1))
    endless = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    for build in (
        lambda: ContinuousPolicy(VECTOR, endless),
        lambda: ActorCriticPolicy(VECTOR, endless, use_sde=True, squash_output=True),
    ):
        with pytest.raises(PolicyError, match="finite low and high"):
            build()
    assert ActorCriticPolicy(VECTOR, endless).predict(np.zeros(5, np.float32))[0].shape == (2,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ContinuousPolicy(VECTOR, DISCRETE), "acts in a Box.*Discrete"),
        (lambda: ValuePolicy(VECTOR, BOX), "need a Discrete action space"),
        (lambda: ActorCriticPolicy(VECTOR, BOX, squash_output=True), "use_sde=True"),
        (lambda: ActorCriticPolicy(VECTOR, DISCRETE, use_sde=True), "use_sde=True"),
        (lambda: ContinuousPolicy(VECTOR, BOX, n_critics=0), "n_critics must be at least 1, got 0"),
        (
            lambda: ContinuousPolicy(VECTOR, BOX, critic=QuantileCritic, n_quantiles=0),
            "n_quantiles must be at least 1, got 0",
        ),
        (lambda: ContinuousPolicy(VECTOR, BOX, use_sde=True, clip_mean=-1.0), "clip_mean"),
        (
            lambda: ContinuousPolicy(VECTOR, BOX, use_sde=True, softplus_std=True),
            "softplus_std=True cannot be used with use_sde=True",
        ),
        (lambda: ValuePolicy(VECTOR, DISCRETE, net_arch={"pi": [4]}), "net_arch must be a list"),
        (lambda: ContinuousPolicy(VECTOR, BOX, net_arch={"pi": [4]}), "'qf'"),
        (lambda: ActorCriticPolicy(VECTOR, BOX, activation_fn="tanh"), "activation_fn"),
    ],
)
def test_impossible_requests_are_refused_at_construction(build, message):
    with pytest.raises(PolicyError, match=message):
        build()


# --- actor-critic ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in EVERY if name.startswith("ppo")])
def test_forward_evaluate_and_value_agree(name):
    policy = EVERY[name](VECTOR)
    obs = tensors(VECTOR, policy)
    actions, values, log_prob = policy(obs)
    assert (actions.shape, values.shape, log_prob.shape) == ((3, *policy.action_space.shape), (3, 1), (3,))
    again, log_prob_again, entropy = policy.evaluate_actions(obs, actions)
    torch.testing.assert_close(again, values)
    steep = 1 / (1 - actions**2).min().item() if policy.squash_output else 1.0  # the slope of the inverse of tanh
    near = bound(5 + 2 * 64 + LIKELY, size=5 * steep)
    torch.testing.assert_close(log_prob_again, log_prob, rtol=0, atol=near)
    torch.testing.assert_close(policy.predict_values(obs), values)
    assert entropy is None if policy.squash_output else entropy.shape == (3,)
    deterministic = policy(obs, deterministic=True)[0]
    assert torch.equal(deterministic, policy.act(obs, True))


def test_discrete_actions_are_read_from_a_rollout_buffer_s_columns():
    policy = ActorCriticPolicy(VECTOR, DISCRETE)
    obs, actions = tensors(VECTOR, policy), torch.tensor([0, 1, 2])
    expected = policy.evaluate_actions(obs, actions)[1]
    assert torch.equal(policy.evaluate_actions(obs, actions.float().unsqueeze(1))[1], expected)


def test_act_does_not_run_the_value_function():
    policy = ActorCriticPolicy(VECTOR, BOX)
    for module in (policy.value_net, policy.mlp_extractor.value_net):
        module.register_forward_pre_hook(lambda *_: pytest.fail("the value function ran"))
    policy.act(tensors(VECTOR, policy))
    policy.predict(make_observations(VECTOR))


@pytest.mark.parametrize("share", [True, False])
def test_extractors_of_actor_and_value_function(share):
    policy = ActorCriticPolicy(IMAGE, DISCRETE, share_features_extractor=share)
    assert (policy.pi_features_extractor is policy.vf_features_extractor) == share
    assert policy.pi_features_extractor is policy.features_extractor
    obs = tensors(IMAGE, policy)
    features = policy.extract_features(obs)
    assert isinstance(features, torch.Tensor) == share
    policy.predict_values(obs).sum().backward()
    assert all((p.grad is not None) == share for p in policy.pi_features_extractor.parameters())
    assert all(p.grad is not None for p in policy.vf_features_extractor.parameters())


def test_log_std_init_sets_the_deviation():
    policy = ActorCriticPolicy(VECTOR, BOX, log_std_init=-1.5)
    assert torch.equal(policy.log_std, torch.full((2,), -1.5))
    torch.testing.assert_close(policy.get_distribution(tensors(VECTOR, policy)).std[0], policy.log_std.exp())
    sde = ActorCriticPolicy(VECTOR, BOX, use_sde=True, log_std_init=-2.5, full_std=False)
    assert torch.equal(sde.log_std, torch.full((64, 1), -2.5))


def test_overridden_features_reach_actor_and_value_function():
    class Doubled(ActorCriticPolicy):
        def extract_features(self, obs, features_extractor=None):
            return 2 * super().extract_features(obs, features_extractor)

    policy = Doubled(VECTOR, DISCRETE)
    plain = ActorCriticPolicy(VECTOR, DISCRETE)
    plain.load_state_dict(policy.state_dict())
    obs = tensors(VECTOR, policy)
    torch.testing.assert_close(policy.predict_values(obs), plain.predict_values(2 * obs))
    torch.testing.assert_close(policy.get_distribution(obs).logits, plain.get_distribution(2 * obs).logits)


# --- gSDE in policies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppo_sde", "sac_sde"])
def test_noise_stays_until_reset_and_differs_between_environments(name):
    policy = EVERY[name](VECTOR)
    obs = tensors(VECTOR, policy, 1).expand(4, 5)
    policy.reset_noise(4)
    first = policy.act(obs)
    assert torch.equal(first, policy.act(obs))
    assert not torch.allclose(first[0], first[1])
    policy.reset_noise(4)
    assert not torch.allclose(first, policy.act(obs))
    single = policy.act(obs[:1])
    assert torch.equal(single, policy.act(obs[:1]))


@pytest.mark.parametrize("name", ["ppo_box", "sac", "td3", "dqn"])
def test_resetting_noise_needs_sde(name):
    with pytest.raises(PolicyError, match="use_sde=True"):
        EVERY[name](VECTOR).reset_noise()


def test_sac_with_sde_bounds_its_mean_and_trains_its_deviation():
    policy = ContinuousPolicy(VECTOR, BOX, use_sde=True, clip_mean=0.5)
    with torch.no_grad():
        policy.actor.mu[0].bias.fill_(100.0)
    actions = policy.actor(tensors(VECTOR, policy), deterministic=True)
    torch.testing.assert_close(actions, torch.tanh(torch.full((3, 2), 0.5)))
    assert policy.actor.get_std().shape == (256, 2)
    torch.testing.assert_close(policy.actor.get_std(), torch.full((256, 2), -3.0).exp())
    actions, log_prob = policy.actor.action_log_prob(tensors(VECTOR, policy))
    (actions.sum() + log_prob.sum()).backward()
    assert policy.actor.log_std.grad.abs().sum() > 0
    with pytest.raises(PolicyError, match="use_sde=True"):
        ContinuousPolicy(VECTOR, BOX).actor.get_std()


# --- SAC, TD3: actors, critics, targets -----------------------------------------------------------------------------


def test_sac_actor_s_deviations_may_be_softplus_of_its_outputs():
    """log(1 + exp(x)), within the same bounds, whose gradient is the logistic function between them and 0 beyond."""
    policy = ContinuousPolicy(VECTOR, BOX, softplus_std=True)
    obs, actor = tensors(VECTOR, policy, 1), policy.actor
    with torch.no_grad():
        actor.log_std.weight.zero_()
    for x in (-1e3, -30.0, -8.0, -1.0, 0.0, 3.0, 7.0, 30.0, 1e3):
        with torch.no_grad():
            actor.log_std.bias.fill_(x)
        deviation = actor.get_distribution(obs).gaussian.std[0, 0]
        expected = np.clip(np.logaddexp(0, x), np.exp(-20.0), np.exp(2.0))
        assert deviation.item() == pytest.approx(expected, rel=bound(100))  # of a logarithm of -20 to 2 and back
        slope = torch.autograd.grad(deviation, actor.log_std.bias)[0][0].item()
        inside = np.exp(-20.0) < np.logaddexp(0, x) < np.exp(2.0)
        assert slope == pytest.approx(inside / (1 + np.exp(-x)), rel=bound(100), abs=1e-30)


@pytest.mark.parametrize("cls", [SimBaActor, CrossQActor])
def test_actors_that_extend_sac_s_have_its_deviations(cls):
    actor = {SimBaActor: {"critic": SimBaCritic, "net_arch": [8]}, CrossQActor: {"critic": CrossQCritic}}[cls]
    policy = ContinuousPolicy(VECTOR, BOX, actor=cls, softplus_std=True, **actor).eval()
    obs = tensors(VECTOR, policy)
    _, log_std, _ = policy.actor.get_action_dist_params(obs)
    policy.actor.softplus_std = False
    _, outputs, _ = policy.actor.get_action_dist_params(obs)
    torch.testing.assert_close(log_std.exp(), torch.nn.functional.softplus(outputs))


def test_sac_actor_s_log_std_is_clamped():
    policy = ContinuousPolicy(VECTOR, BOX)
    obs = tensors(VECTOR, policy)
    for bias, expected in ((1e3, 2.0), (-1e3, -20.0)):
        with torch.no_grad():
            policy.actor.log_std.bias.fill_(bias)
        assert torch.equal(policy.actor.get_action_dist_params(obs)[1], torch.full((3, 2), expected))


def test_sac_actor_s_density_is_that_of_its_gaussian_through_tanh():
    policy = ContinuousPolicy(VECTOR, BOX)
    obs = tensors(VECTOR, policy)
    actions, log_prob = policy.actor.action_log_prob(obs)
    mean, log_std, _ = policy.actor.get_action_dist_params(obs)
    reference = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()), torch.distributions.TanhTransform()
    )
    steep = 1 / (1 - actions**2).min().item()  # the slope of the inverse of tanh, which the reference takes
    torch.testing.assert_close(log_prob, reference.log_prob(actions).sum(1), rtol=0, atol=bound(LIKELY, 5 * steep))


@pytest.mark.parametrize("n_critics", [1, 2, 4])
def test_all_ways_to_ask_the_critics_agree(n_critics):
    policy = ContinuousPolicy(VECTOR, BOX, n_critics=n_critics)
    obs, actions = tensors(VECTOR, policy), torch.as_tensor(make_actions(BOX))
    values = policy.critic.q_values(obs, actions)
    assert values.shape == (n_critics, 3)
    each = policy.critic(obs, actions)
    assert [q.shape for q in each] == [(3, 1)] * n_critics
    assert torch.equal(torch.stack(each).squeeze(2), values)
    assert torch.equal(policy.critic.q1_forward(obs, actions), each[0])
    assert n_critics == 1 or not torch.allclose(values[0], values[1])


@pytest.mark.parametrize(("n_critics", "n_quantiles"), [(1, 1), (2, 25), (4, 3)])
def test_all_ways_to_ask_critics_of_quantiles_agree(n_critics, n_quantiles):
    policy = ContinuousPolicy(VECTOR, BOX, critic=QuantileCritic, n_critics=n_critics, n_quantiles=n_quantiles)
    obs, actions = tensors(VECTOR, policy), torch.as_tensor(make_actions(BOX))
    each = policy.critic(obs, actions)
    assert each.shape == (3, n_critics, n_quantiles)
    assert policy.critic.quantiles_total == n_critics * n_quantiles
    assert torch.equal(policy.critic.quantiles(obs, actions), each.transpose(0, 1))
    inputs = torch.cat([obs, actions], 1)
    for k, network in enumerate(policy.critic.q_networks):
        assert torch.equal(each[:, k], network(inputs))
    near = bound(n_quantiles, each.abs().max().item())
    values = policy.critic.q_values(obs, actions)
    torch.testing.assert_close(values, each.mean(2).T, rtol=0, atol=near)
    torch.testing.assert_close(policy.critic.q1_forward(obs, actions), values[:1].T, rtol=0, atol=near)
    assert torch.equal(policy.critic_target(obs, actions), each)


def test_critics_read_actions_of_any_shape():
    policy = ContinuousPolicy(VECTOR, GRID)
    obs = tensors(VECTOR, policy)
    actions = policy.act(obs)
    assert torch.equal(policy.critic.q_values(obs, actions), policy.critic.q_values(obs, actions.flatten(1)))


@pytest.mark.parametrize("actor", ["squashed_gaussian", "deterministic"])
@pytest.mark.parametrize("share", [True, False])
def test_only_the_actor_trains_a_shared_extractor(actor, share):
    policy = ContinuousPolicy(IMAGE, BOX, actor=actor, share_features_extractor=share)
    assert (policy.critic.features_extractor is policy.actor.features_extractor) == share
    obs, actions = tensors(IMAGE, policy), torch.as_tensor(make_actions(BOX)).requires_grad_()
    policy.critic.q_values(obs, actions).sum().backward()
    assert actions.grad.abs().sum() > 0
    assert all((p.grad is None) == share for p in policy.critic.features_extractor.parameters())
    owned = {id(p) for p in policy.critic.own_parameters()}
    assert owned == {id(p) for p in policy.critic.parameters() if p.grad is not None}
    policy.critic.zero_grad()
    policy.actor(obs).sum().backward()
    assert all(p.grad is not None for p in policy.actor.features_extractor.parameters())


def test_the_target_s_extractor_is_shared_with_the_target_actor_only():
    td3 = ContinuousPolicy(IMAGE, BOX, actor="deterministic", share_features_extractor=True)
    assert td3.critic_target.features_extractor is td3.actor_target.features_extractor
    sac = ContinuousPolicy(IMAGE, BOX, share_features_extractor=True)
    assert sac.critic_target.features_extractor is not sac.actor.features_extractor


class Moody(BaseFeaturesExtractor):
    """Batch normalisation and dropout: behaves differently in training."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 5)
        self.net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(5), nn.Dropout(0.5))

    def forward(self, observations):
        return self.net(observations)


@pytest.mark.parametrize("kind", ["sac", "td3", "dqn"])
@pytest.mark.parametrize("extractor", [None, Moody, NatureCNN])
def test_targets_start_equal_are_frozen_and_stay_in_evaluation_mode(kind, extractor):
    space = IMAGE if extractor is NatureCNN else VECTOR
    policy = {
        "sac": lambda: ContinuousPolicy(space, BOX, features_extractor_class=extractor),
        "td3": lambda: ContinuousPolicy(space, BOX, actor="deterministic", features_extractor_class=extractor),
        "dqn": lambda: ValuePolicy(space, DISCRETE, features_extractor_class=extractor),
    }[kind]()
    assert len(policy.targets) == (2 if kind == "td3" else 1)
    policy.set_training_mode(True)
    holder = nn.ModuleList([policy])
    holder.train()
    for name in policy.targets:
        target, online = getattr(policy, name), getattr(policy, name.removesuffix("_target"))
        assert not any(p.requires_grad for p in target.parameters())
        assert not any(module.training for module in target.modules())
        assert all(module.training for module in online.modules())
        assert not {p.data_ptr() for p in target.parameters()} & {p.data_ptr() for p in online.parameters()}
        for ours, theirs in zip(target.state_dict().values(), online.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs)
        with torch.no_grad():
            for parameter in online.parameters():
                parameter.add_(1.0)
        assert not torch.equal(next(target.parameters()), next(online.parameters()))
        polyak_update(online, target, 1.0)
        assert torch.equal(next(target.parameters()), next(online.parameters()))


def test_a_target_may_switch_as_its_critics_do():
    class Restless(ContinuousCritic):
        target_switches = True

    policy = ContinuousPolicy(VECTOR, BOX, critic=Restless, features_extractor_class=Moody)
    assert policy.targets == ()
    for mode in (True, False, True):
        policy.set_training_mode(mode)
        assert all(module.training == mode for module in policy.critic_target.modules())
    assert not any(p.requires_grad for p in policy.critic_target.parameters())


def test_an_actor_class_may_be_given():
    class Timid(SquashedGaussianActor):
        def forward(self, obs, deterministic=False):
            return 0.1 * super().forward(obs, deterministic)

    policy = ContinuousPolicy(VECTOR, BOX, actor=Timid)
    assert policy.act(tensors(VECTOR, policy)).abs().max() <= 0.1


# --- DQN ------------------------------------------------------------------------------------------------------------


# --- odds and ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppo_box", "sac", "dqn"])
def test_parameters_travel_as_one_vector(name):
    policy, other = EVERY[name](VECTOR), EVERY[name](VECTOR)
    vector = policy.parameters_to_vector()
    assert vector.shape == (sum(p.numel() for p in policy.parameters()),)
    other.load_from_vector(vector)
    obs = make_observations(VECTOR)
    np.testing.assert_array_equal(policy.predict(obs, deterministic=True)[0], other.predict(obs, deterministic=True)[0])
    with pytest.raises(ValueError, match="vector must have shape"):
        other.load_from_vector(vector[:-1])


@pytest.mark.parametrize(
    ("obs", "name"),
    [
        ("dict", "ppo_box"),
        *(
            pytest.param("vector", name, marks=pytest.mark.slow)
            for name in ("ppo_sde", "sac", "dqn", "ppo_discrete", "sac_sde", "td3")
        ),
    ],
)
def test_acting_and_losses_are_one_graph(name, obs):
    """No graph break: traced by dynamo with an eager backend, which is quick."""
    space = OBSERVATIONS[obs]
    policy = EVERY[name](space)
    batch = tensors(space, policy)

    def run(batch):
        actions = policy.act(batch)
        if name.startswith("ppo"):
            return policy.evaluate_actions(batch, actions)[1]
        if name == "dqn":
            return policy.q_net(batch)
        if name.startswith("sac"):
            actions, _ = policy.actor.action_log_prob(batch)
        return policy.critic.q_values(batch, actions)

    torch._dynamo.reset()
    assert torch.isfinite(torch.compile(run, backend="eager", fullgraph=True)(batch)).all()
    torch._dynamo.reset()
    deterministic = torch.compile(lambda x: policy.act(x, True), backend="eager", fullgraph=True)(batch)
    torch.testing.assert_close(deterministic, policy.act(batch, True))


def test_switching_modes_does_what_train_does() -> None:
    class Stubborn(nn.Module):
        def train(self, mode: bool = True) -> "Stubborn":
            self.asked = mode
            return super().train(False)

    for make in (lambda: ValuePolicy(GRID, DISCRETE), lambda: ContinuousPolicy(GRID, BOX)):
        quick, plain = make(), make()
        for policy in (quick, plain):
            policy.extra = nn.Sequential(nn.Dropout(), Stubborn())
        for mode in (False, True, False):
            quick.set_training_mode(mode)
            plain.train(mode)
            assert [m.training for m in quick.modules()] == [m.training for m in plain.modules()]
            assert quick.extra[1].asked is mode
        for policy in (quick, plain):
            policy.extra[0] = nn.Sequential(nn.Dropout())
        switched = make()
        switched.set_training_mode(False)
        copied = pickle.loads(pickle.dumps(copy.deepcopy(switched)))
        for policy in (quick, copied):
            policy.set_training_mode(True)
            policy.set_training_mode(False)
            assert not any(m.training for m in policy.modules())
            policy.set_training_mode(True)
        plain.train(True)
        assert [m.training for m in quick.modules()] == [m.training for m in plain.modules()]
        assert copied.training


def test_initial_weights_are_equal_for_any_number_of_threads() -> None:
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            found.append(ActorCriticPolicy(VECTOR, spaces.Discrete(3)).state_dict())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*(each.values() for each in found), strict=True))
