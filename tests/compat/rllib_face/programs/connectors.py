"""Pieces of one's own: observations rewritten before the module, rewards before the learner, in training and after."""

from collections import Counter

import gymnasium as gym
import numpy as np
from games import SEEN, Counting, count, evaluated, ppo, trained
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module.flatten_observations import FlattenObservations
from ray.rllib.connectors.env_to_module.observation_preprocessor import SingleAgentObservationPreprocessor
from ray.rllib.connectors.env_to_module.prev_actions_prev_rewards import PrevActionsPrevRewards
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from torch import nn


class Doubled(SingleAgentObservationPreprocessor):
    """The place counted in half steps."""

    def preprocess(self, observation, episode):
        count("preprocess")
        return {**observation, "place": 2 * observation["place"]}

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        place = gym.spaces.Box(0.0, 10.0, (1,), np.float32)
        return gym.spaces.Dict({**input_observation_space.spaces, "place": place})


class Shifted(ConnectorV2):
    """What is left as one array, with a further entry that is always 7."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(-np.inf, np.inf, (input_observation_space.shape[0] + 1,), np.float32)

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        count("Shifted")
        SEEN.setdefault("explores", set()).add(bool(explore))
        SEEN["has a module"] = rl_module is not None or SEEN.get("has a module", False)
        shared_data["calls"] = shared_data.get("calls", 0) + 1
        for episode in self.single_agent_episode_iterator(episodes):
            old = episode.get_observations(-1)
            new = np.append(old, np.float32(7)).astype(np.float32)
            episode.set_observations(new_data=new, at_indices=-1)
        return batch


class Counted(ConnectorV2):
    """What was seen seldom is worth more."""

    def __init__(self, input_observation_space=None, input_action_space=None, *, weight=1.0, **kwargs):
        super().__init__(input_observation_space, input_action_space)
        self.counts, self.weight = Counter(), weight

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        count("Counted")
        SEEN["modules of the learner"] = sorted(rl_module.keys())
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            observations = episode.get_observations(slice(None, -1))
            rewards = episode.get_rewards()
            SEEN["of the learner"] = [type(observations).__name__, type(rewards).__name__, episode.is_numpy]
            SEEN["as the module saw them"] = {float(one[-1]) for one in observations}
            for index, (observation, reward) in enumerate(zip(observations, rewards, strict=True)):
                self.counts[tuple(observation)] += 1
                new = reward + self.weight / self.counts[tuple(observation)]
                episode.set_rewards(new_data=new, at_indices=index)
        SEEN["all steps"] = sum(self.counts.values()) >= 40  # RLlib adds one to each episode that was cut
        return batch


class Looking(TorchRLModule, ValueFunctionAPI):
    """Notes what it is shown."""

    def setup(self):
        SEEN["space"] = [type(self.observation_space).__name__, list(self.observation_space.shape)]
        self.net, self.value = nn.Linear(self.observation_space.shape[0], 2), nn.Linear(1, 1)

    def _forward(self, batch, **kwargs):
        for row in batch["obs"].reshape(-1, batch["obs"].shape[-1]).tolist():
            if row[0] < 10:  # where an episode has ended, RLlib asks for a value that it then leaves out
                SEEN.setdefault("shown", set()).add(tuple(row[:4] + row[-1:]))
        return {"action_dist_inputs": self.net(batch["obs"])}

    def compute_values(self, batch, embeddings=None):
        return self.value(batch["obs"][..., :1]).squeeze(-1)


def pieces(env, spaces, device):
    SEEN["single"] = sorted(env.single_observation_space.spaces) if env is not None else SEEN.get("single")
    return [Doubled(), FlattenObservations(), Shifted()]


def stretch_of_an_episode():
    space = gym.spaces.Box(-9.0, 9.0, (2,), np.float32)
    rows = [np.array([index, -index], np.float32) for index in range(4)]
    episode = SingleAgentEpisode(
        observations=rows,
        observation_space=space,
        action_space=gym.spaces.Discrete(3),
        actions=[0, 2, 1],
        rewards=[0.5, 1.5, -1.0],
        len_lookback_buffer=0,
    )
    piece = PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=4)
    piece.input_action_space = gym.spaces.Discrete(3)
    piece.input_observation_space = space
    told = {
        "last": episode.get_observations(-1).tolist(),
        "two": [one.tolist() for one in episode.get_observations(slice(-2, None))],
        "beyond": [one.tolist() for one in episode.get_observations(slice(-6, None), fill=0.0)],
        "actions": [one.tolist() for one in episode.get_actions(slice(-4, None), fill=0.0, one_hot_discrete=True)],
        "rewards": [float(one) for one in episode.get_rewards(slice(-4, None), fill=0.0)],
        "listed": [one.tolist() for one in episode.get_observations([0, -1])],
        "return": episode.get_return(),
        "length": len(episode),
    }
    piece(rl_module=None, batch={}, episodes=[episode], explore=True, shared_data={})
    made = episode.get_observations(-1)
    told["augmented"] = {name: np.asarray(part).reshape(-1).tolist() for name, part in made.items()}
    told["spaces"] = {name: list(part.shape) for name, part in piece.observation_space.spaces.items()}
    return told


def own_connectors():
    """In training and after, and a stretch of an episode that a piece of RLlib's rewrites."""
    config = ppo(
        Corridor,
        rows=20,
        minibatch=10,
        epochs=1,
        spec=RLModuleSpec(module_class=Looking),
        use_kl_loss=True,
        learner_connector=lambda observations, actions: Counted(weight=0.5),
    )
    config.env_runners(env_to_module_connector=pieces)
    with trained(evaluated(config, 1), 2) as (_, results):
        SEEN["own returns"] = 0.0 <= results[-1]["evaluation"]["env_runners"]["episode_return_mean"] <= 5.0
    equal = {key: sorted(value) if isinstance(value, set) else value for key, value in SEEN.items()}
    return {**equal, "episode": stretch_of_an_episode()}


class Corridor(Counting):
    """Episodes of five steps: the place, and which of three signs hangs there. Action 1 is worth 1."""

    length = 5

    def __init__(self, config=None):
        super().__init__(config)
        place = gym.spaces.Box(0.0, 5.0, (1,), np.float32)
        self.observation_space = gym.spaces.Dict({"sign": gym.spaces.Discrete(3), "place": place})
        self.action_space = gym.spaces.Discrete(2)

    def _look(self):
        return {"sign": self.steps % 3, "place": np.array([self.steps], np.float32)}
