"""`polyak tune`: a study of many trainings that searches for the best settings.

::

    options        the options of the command               command    from options to a study and its report
    problem        the tuning problem, the search space     workers    trials, one after the other or in parallel
    training       a trial: one agent a seed, in step       studies    trials: stored, counted and continued
    lockstep       work that pauses                         report     table, plots and the best settings
    score          from returns to one number and its bound search     samplers, pruners and the decision to prune
"""
