"""What is in a capture, in the formats of other tools: a file for each format, and what several of them share.

profile.py: stacks with their weights. pprof.py, speedscope.py: the files of them. timeline.py: what happened when.
perfetto.py: the file of it. rows.py: the rows of a table or query as CSV, JSON lines or Arrow.

A format is bytes in parts, so that a file of any size needs little memory.
"""
