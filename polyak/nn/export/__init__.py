"""A policy as one graph from raw observations to actions in the environment's units, in a file that needs no polyak.

:mod:`~polyak.nn.export.observations` and :mod:`~polyak.nn.export.actions` are the steps before and after the policy,
:mod:`~polyak.nn.export.policy_graph` joins all of them, :mod:`~polyak.nn.export.ports` describes inputs and outputs,
and :mod:`~polyak.nn.export.files` writes files.
"""
