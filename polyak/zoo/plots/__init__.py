"""Figures and tables of runs: one file a command, and what they are made of.

::

    selection    which runs of a logs folder are meant        curves       lines and their bands
    evaluations  evaluations.npz, several runs joined         results      evaluations of many methods, as pickles
    statistics   comparisons with intervals                   tables       Markdown and LaTeX
    drawing      figures of curves                            comparisons  figures of results
    look         sizes, type, colours                         image_files  files and windows
"""
