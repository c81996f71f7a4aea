"""``polyak report`` and ``polyak board``: all runs under a folder as one page, in a file or served while they continue.

=================  =====================================================================================================
``logbook``        finds the runs, reads what changed since the last look, and makes the data of the page
``tail``           a CSV file that grows: each row is read once
``run_files``      one run's files, and why a file could not be read
``thinning``       a million rows as a few hundred points that keep the extremes
``groups``         runs that differ in nothing but their seed, and names for what else they differ in
``films``          videos as data URIs, within a limit
``page``           the page itself, and ``polyak report``
``board``          the server, and ``polyak board``
``assets/``        the page's template, style and programs
=================  =====================================================================================================

Whatever is read from files reaches the page as JSON, and is put on the screen as text, never as HTML.
"""
