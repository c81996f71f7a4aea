"""``polyak report`` and ``polyak board``: all runs under a folder as one page, in a file or served while they continue.

==========  ============================================================================================================
``runs``    finds the runs and reads one run's files, or names why a file could not be read
``groups``  runs that differ in their seed alone, and names for their other differences
``figures`` the runs' curves as plotly's figures, their tables, and their videos
``page``    the page itself, and ``polyak report``
``board``   the server, and ``polyak board``
==========  ============================================================================================================

Everything read from files is put into the page as JSON or as escaped text, never as HTML.
"""
