"""`polyak tune`: a study of many trainings that searches for the best settings.

::

    options        what can be asked for                    command    from options to a study and its report
    problem        what is tuned, and the search space      workers    trials, one after the other or in parallel
    training       a trial: one agent a seed, in step       studies    where trials are kept, counted and taken up again
    lockstep       work that pauses                         report     table, plots and the best settings
    score          from returns to one number and its bound search     samplers, pruners and the decision to prune
"""
