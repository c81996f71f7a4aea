"""Figures and tables of runs, for `polyak plot`.

::

    plot         the command; learning curves           selection  which runs of a logs folder are meant
    tables       evaluations as a table and a file      curves     lines and their bands
    comparisons  what such files hold, as figures       results    evaluations of many methods, as pickles
    drawing      figures of curves                      statistics comparisons with intervals
    look         sizes, type, colours                   images     files and windows
"""
