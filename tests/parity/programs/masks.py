"""sb3-contrib's masks: signatures, distributions, buffers, wrappers, short seeded trainings, files."""

import copy
import inspect
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import worlds
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary, InvalidActionEnvMultiDiscrete
from sb3_contrib.common.maskable import buffers, callbacks, distributions, evaluation, policies, utils
from sb3_contrib.common.maskable.distributions import MaskableCategorical, make_masked_proba_distribution
from sb3_contrib.common.wrappers import ActionMasker, TimeFeatureWrapper
from stable_baselines3.common.env_util import make_vec_env
from training import _sums

# Of sums of weights and of losses, after some hundred updates in which differences of rounding grow.
TOLERANCE = 2e-3

SPACES = {"one": spaces.Discrete(4), "several": spaces.MultiDiscrete([2, 3]), "coins": spaces.MultiBinary(3)}


def signatures() -> Any:
    """Names and defaults of what is taken by position."""

    def shown(function: Any) -> Any:
        taken = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        return [[p.name, p.default if callable(p.default) else repr(p.default)] for p in taken]

    classes = {"MaskablePPO": MaskablePPO, "learn": MaskablePPO.learn, "predict": MaskablePPO.predict}
    policy = policies.MaskableActorCriticPolicy
    classes |= {"policy": policy, "cnn": policies.MaskableActorCriticCnnPolicy, "evaluate": evaluation.evaluate_policy}
    methods = ("forward", "get_distribution", "predict", "extract_features", "predict_values")
    classes |= {name: getattr(policy, name) for name in methods}
    classes |= {"buffer": buffers.MaskableRolloutBuffer, "categorical": MaskableCategorical}
    return {name: shown(cls) for name, cls in classes.items()}


def _rows(width: int, masks: bool = False) -> Any:
    draw = np.random.default_rng(width)
    if not masks:
        return torch.from_numpy(draw.normal(size=(6, width)).astype(np.float32))
    return draw.random((6, width)) < 0.8


def masked_distributions() -> Any:
    """Drawn, likeliest, how likely, how uncertain; masks changed and taken away."""
    found: dict[str, Any] = {}
    for name, space in SPACES.items():
        dist = make_masked_proba_distribution(space)
        width = {"one": 4, "several": 5, "coins": 6}[name]
        masks = _rows(width, True)
        masks[:, [0, 2 if name != "one" else 0, 4 if name == "coins" else 0]] = True
        if name != "one":
            masks[:, -1] = True
        torch.manual_seed(0)
        logits = _rows(width).requires_grad_()
        assert dist.proba_distribution(logits) is dist
        for turn, mask in {"masked": masks, "other": ~(masks & (np.arange(width) == 1)), "free": None}.items():
            dist.apply_masking(mask)
            actions, likeliest = dist.sample(), dist.mode()
            log_prob, entropy = dist.log_prob(likeliest), dist.entropy()
            slope = torch.autograd.grad(log_prob.sum() + entropy.sum(), logits, retain_graph=True)[0]
            found[f"{name}, {turn}"] = [actions, likeliest, log_prob, entropy, slope]
        found[f"{name}, from parameters"] = [dist.actions_from_params(logits, True), *dist.log_prob_from_params(logits)]
        found[f"{name}, layer"] = dist.proba_distribution_net(7).weight.shape[0]
    return found


def torch_categorical() -> Any:
    """The one that lies beneath, from probabilities and from logits."""
    probs, mask = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]), np.array([[True, True, False], [False] * 3])
    found = []
    for made in (MaskableCategorical(probs=probs), MaskableCategorical(logits=probs.log(), masks=mask)):
        for now in (made.masks, mask, None, mask[:, ::-1].copy()):
            made.apply_masking(now)
            found.append([made.probs, made.entropy(), made.log_prob(torch.tensor([0, 1])), made.masks is None])
    return found


def rollout_buffers() -> Any:
    """Masks in and out; those that nobody gives."""
    found: dict[str, Any] = {}
    for name, space in SPACES.items():
        box = spaces.Box(-1, 1, (2,))
        buffer = buffers.MaskableRolloutBuffer(3, box, space, device="cpu", n_envs=2)
        width = buffer.mask_dims
        before = [buffer.action_masks.shape, str(buffer.action_masks.dtype), float(buffer.action_masks.sum())]
        shape = (2, *(space.shape or (1,)))
        step = (np.zeros((2, 2)), np.zeros(shape), np.ones(2), np.zeros(2), torch.ones(2), torch.zeros(2))
        for masks in (np.arange(2 * width).reshape(2, width) % 2, None, np.zeros((2, width), bool)):
            buffer.add(*step, action_masks=masks)
        stored = buffer.action_masks.copy()
        buffer.compute_returns_and_advantage(torch.zeros(2), np.zeros(2, bool))
        batch = next(buffer.get())
        found[name] = [before, stored, list(batch._fields), batch.action_masks.sum(), str(batch.action_masks.dtype)]
    nested = spaces.Dict({"a": spaces.Box(-1, 1, (2,))})
    buffer = buffers.MaskableDictRolloutBuffer(1, nested, SPACES["one"], device="cpu")
    buffer.add({"a": np.zeros((1, 2))}, np.zeros((1, 1)), np.ones(1), np.ones(1), torch.ones(1), torch.ones(1))
    buffer.compute_returns_and_advantage(torch.zeros(1), np.zeros(1, bool))
    batch = next(buffer.get(1))
    return found | {"nested": [type(batch).__name__, list(batch.observations), batch.action_masks]}


def _forbidding() -> dict[str, Any]:
    return {
        "one": InvalidActionEnvDiscrete(6, ep_length=10, n_invalid_actions=3),
        "several": InvalidActionEnvMultiDiscrete([3, 2, 4], ep_length=10, n_invalid_actions=3),
        "coins": InvalidActionEnvMultiBinary(4, ep_length=10, n_invalid_actions=3),
    }


def _states(env: gym.Env, n: int) -> np.ndarray:
    """The same ones, whatever has drawn from the space before."""
    space = copy.deepcopy(env.observation_space)
    space.seed(1)
    return np.stack([space.sample() for _ in range(n)])


def environments() -> Any:
    """What they allow, and what they give for it."""
    found: dict[str, Any] = {}
    for name, env in _forbidding().items():
        env.reset()
        kept = [env.step(env.state)[1:] + (sum(env.action_masks()), len(env.invalid_actions)) for _ in range(12)]
        found[name] = [kept, len(env.action_masks()), env.n_invalid_actions, env.possible_actions]
    for name, make in {
        "too many": lambda: InvalidActionEnvMultiDiscrete([3, 2], n_invalid_actions=4),
        "too many coins": lambda: InvalidActionEnvMultiBinary(3, n_invalid_actions=4),
        "alone": lambda: InvalidActionEnvDiscrete().action_masks(),
    }.items():
        try:
            found[name] = make()
        except ValueError as error:
            found[name] = type(error).__name__
    return found


def wrappers() -> Any:
    """A function that says masks; the time that is left."""
    masked = ActionMasker(gym.make("CartPole-v1"), lambda env: [env.action_space.n == 2, False])
    vec = make_vec_env(lambda: ActionMasker(gym.make("CartPole-v1"), lambda env: np.array([True, False])), 2)
    plain = gym.make("CartPole-v1")
    said = [masked.action_masks(), utils.get_action_masks(vec), utils.is_masking_supported(vec)]
    said += [utils.is_masking_supported(masked), utils.is_masking_supported(plain), utils.EXPECTED_METHOD_NAME]
    found: dict[str, Any] = {"masks": said}
    for name, env in {
        "limit": TimeFeatureWrapper(gym.make("Pendulum-v1")),
        "no limit": TimeFeatureWrapper(gym.make("Pendulum-v1").unwrapped, max_steps=3),
        "test": TimeFeatureWrapper(gym.make("Pendulum-v1"), test_mode=True),
    }.items():
        first = env.reset(seed=0)[0]
        later = [env.step(np.zeros(1, np.float32))[0] for _ in range(4)]
        space = env.observation_space
        found[name] = [first, later, space.low, space.high, str(space.dtype), env.reset(seed=0)[0]]
    return found


def _learned(env: Any, steps: int = 128, policy: str = "MlpPolicy", use_masking: bool = True, **options: Any) -> Any:
    settings = {"n_steps": 64, "batch_size": 32, "n_epochs": 3, **options}
    model = MaskablePPO(policy, env, seed=7, device="cpu", **settings)
    return model.learn(steps, log_interval=10_000, use_masking=use_masking)


def training() -> Any:
    """In each of the three environments."""
    return {name: _sums(_learned(env)) for name, env in _forbidding().items()}


def training_options() -> Any:
    """Two environments that cut episodes short, clipped values, an entropy bonus, a limit of the divergence."""
    options = {"clip_range_vf": 0.2, "ent_coef": 0.01, "target_kl": 0.01, "learning_rate": 1e-3, "n_steps": 32}
    env = make_vec_env(InvalidActionEnvDiscrete, 2, seed=7, env_kwargs={"dim": 6, "n_invalid_actions": 3})
    return _sums(_learned(env, 256, **options))


def training_numbers() -> Any:
    """Observations that are numbers, a policy of another shape; each side is forbidden in turn."""

    def allowed(env: gym.Env) -> np.ndarray:
        velocity = env.unwrapped.state[3]
        return np.array([velocity < 1, velocity > -1])

    env = ActionMasker(gym.make("CartPole-v1"), allowed)
    small = {"net_arch": {"pi": [16], "vf": [24, 16]}, "share_features_extractor": False}
    return _sums(_learned(env, 192, policy_kwargs=small))


def training_without() -> Any:
    """Masks that are not kept to, and an environment that has none."""
    env = _forbidding()["one"]
    found = {
        "ignored": _sums(_learned(env, use_masking=False)),
        "none": _sums(_learned("CartPole-v1", use_masking=False)),
    }
    try:
        _learned("CartPole-v1")
    except ValueError as error:
        found["needed"] = type(error).__name__
    return found


def training_pictures() -> Any:
    """Features that actor and critic share."""
    env = ActionMasker(worlds.Pictures(), lambda env: np.arange(env.action_space.n) > 0)
    small = {"features_extractor_kwargs": {"features_dim": 16}}
    return _sums(_learned(env, 32, "CnnPolicy", n_steps=16, batch_size=8, policy_kwargs=small))


def training_nested() -> Any:
    """A Dict of observations."""
    env = ActionMasker(worlds.Several(), lambda env: np.arange(env.action_space.n) > 0)
    return _sums(_learned(env, 32, "MultiInputPolicy", n_steps=16, batch_size=8))


def subclassed() -> Any:
    """A policy, a buffer and a callback of one's own, which see what is allowed."""
    seen: dict[str, Any] = {"forward": 0.0, "add": 0.0, "evaluate": 0.0}

    class Mine(policies.MaskableActorCriticPolicy):
        def forward(self, obs: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
            seen["forward"] += float(np.asarray(action_masks).sum())
            return super().forward(obs, deterministic, action_masks)

        def evaluate_actions(self, obs: Any, actions: Any, action_masks: Any = None) -> Any:
            seen["evaluate"] += float(action_masks.sum())
            return super().evaluate_actions(obs, actions, action_masks)

    class Rollouts(buffers.MaskableRolloutBuffer):
        def add(self, *args: Any, action_masks: Any = None, **kwargs: Any) -> None:
            seen["add"] += float(np.asarray(action_masks).sum())
            super().add(*args, action_masks=action_masks, **kwargs)

    model = _learned(_forbidding()["one"], policy=Mine, rollout_buffer_class=Rollouts)
    return [_sums(model), seen, type(model.rollout_buffer).__name__]


def evaluations(folder: Path) -> Any:
    """With masks and without, by the callback and by the function."""
    env, other = _forbidding()["several"], _forbidding()["several"]
    callback = callbacks.MaskableEvalCallback(other, eval_freq=64, n_eval_episodes=2, verbose=0, log_path=str(folder))
    model = MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=32, seed=7, device="cpu").learn(128, callback)
    with np.load(folder / "evaluations.npz") as file:
        shapes = {name: list(file[name].shape) for name in file.files}
    found: dict[str, Any] = {"shapes": shapes, "use_masking": callback.use_masking}
    for use_masking in (True, False):
        lengths = evaluation.evaluate_policy(
            model, other, 3, return_episode_rewards=True, warn=False, use_masking=use_masking
        )[1]
        found[f"lengths {use_masking}"] = lengths
    try:
        evaluation.evaluate_policy(model, gym.make("CartPole-v1"), warn=False)
    except ValueError as error:
        found["no masks"] = type(error).__name__
    return found


def predictions(folder: Path) -> Any:
    """One mask, several, none; a model, a policy, and what files bring back."""
    found: dict[str, Any] = {}
    for name, env in _forbidding().items():
        model = _learned(env, 64, learning_rate=1e-2)
        model.save(folder / name)
        model.policy.save(folder / f"{name} policy")
        policy = policies.MaskableActorCriticPolicy.load(folder / f"{name} policy", device="cpu")
        obs = _states(env, 8)
        width = model.rollout_buffer.mask_dims
        masks = np.ones((8, width), bool)
        masks[:, 0] = False
        acted = [m.predict(obs, None, None, True, masks)[0] for m in (model, MaskablePPO.load(folder / name), policy)]
        single = model.predict(obs[0], deterministic=True, action_masks=masks[0])[0]
        found[name] = [*acted, single, np.shape(single), model.predict(obs, deterministic=True)[0]]
    return found


def methods_of_policies() -> Any:
    """What each gives, with masks as arrays and as tensors."""
    found: dict[str, Any] = {}
    for name, env in _forbidding().items():
        torch.manual_seed(3)
        policy = MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=3, device="cpu").policy
        policy.action_net.weight.data.mul_(200)
        states = _states(env, 5)
        obs = policy.obs_to_tensor(states)[0]
        masks = np.array([[True, False, True, False, True, False, True, False, True][: len(env.action_masks())]] * 5)
        torch.manual_seed(0)
        actions, values, log_prob = policy(obs, action_masks=masks)
        evaluated = policy.evaluate_actions(obs, actions, action_masks=torch.from_numpy(masks).float())
        dist = policy.get_distribution(obs, action_masks=masks)
        found[name] = [actions, values, log_prob, *evaluated, dist.mode(), policy.predict_values(obs)]
        found[f"{name}, weights"] = {key: list(tensor.shape) for key, tensor in policy.state_dict().items()}
        found[f"{name}, distribution"] = type(policy.action_dist).__name__
    return found


def distributions_of_spaces() -> Any:
    """Which belongs to which."""
    return {name: distributions.make_masked_proba_distribution(space) for name, space in SPACES.items()}
