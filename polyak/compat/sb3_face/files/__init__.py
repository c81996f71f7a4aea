"""Stable-Baselines3's saved files: read without running code from them, written on request.

==================  ==================================================================================================
:mod:`.names`       every name that such a file may hold, and what it stands for here
:mod:`.unpickle`    a pickle as inert records: nothing that it names is imported or called
:mod:`.translate`   the records as arrays, spaces, schedules ...
:mod:`.model_zip`   a model's zip, as :class:`polyak.checkpoint.saved.Saved`
:mod:`.statistics`  ``vecnormalize.pkl``, read and written
:mod:`.replay`      a replay buffer's pickle
:mod:`.export`      a model as a zip that Stable-Baselines3 loads
==================  ==================================================================================================
"""
