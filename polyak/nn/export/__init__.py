"""A policy as one graph from raw observations to actions in the environment's units, in a file that needs no polyak.

:mod:`~polyak.nn.export.observations` and :mod:`~polyak.nn.export.actions` are what stands before and after the policy,
:mod:`~polyak.nn.export.policy_graph` is all of it in a row, :mod:`~polyak.nn.export.ports` describes what goes in and
out, and :mod:`~polyak.nn.export.files` writes.
"""
