"""What users do to a learner between two gradient steps, which its programs must notice."""

import copy

import torch

from polyak import SAC


def replaced_network(model: SAC) -> None:
    model.policy.critic.qf0 = copy.deepcopy(model.policy.critic.qf1)
    model.learner.optimizers["critic"] = torch.optim.Adam(model.policy.critic.parameters(), lr=3e-4)


def loaded_optimizer(model: SAC) -> None:
    state = copy.deepcopy(model.actor.optimizer.state_dict())
    for each in state["state"].values():
        each["exp_avg"] += 1
    model.learner.load_optimizer("actor", state)
