"""`polyak tune`: a study of many trainings looks for the settings that give the best agents.

::

    options        what can be asked for                    command    from options to a study and its report
    problem        what is tuned, and where one looks       workers    trials, one after the other or side by side
    training       a trial: one agent a seed, in step       studies    where trials are kept, counted and taken up again
    lockstep       work that pauses                         report     table, plots and the best settings
    score          from returns to one number and its bound search     samplers, pruners and the decision to prune
"""
