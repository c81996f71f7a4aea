"""Base classes that type checkers see for mixins, which are put in front of classes that are chosen at run time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyak.algorithms.cql import CQLLearner as BeforeCQL
    from polyak.algorithms.dqn import DQNLearner as BeforeDQN
    from polyak.algorithms.iql import IQLLearner as BeforeIQL
    from polyak.algorithms.ppo import PPOLearner as BeforePPO
    from polyak.algorithms.sac import SACLearner as BeforeSAC
    from polyak.network_algorithm import NetworkAlgorithm as BeforeAlgorithm
else:
    BeforeAlgorithm = BeforeCQL = BeforeDQN = BeforeIQL = BeforePPO = BeforeSAC = object
