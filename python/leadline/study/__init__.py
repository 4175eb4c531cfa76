"""Studies: factors with levels, in randomised complete blocks, on servers that are set up for it and left as they were.

A study is what an experiment is, with more than two variants: trials, seal, order, verdict and record are those of book/experiments.
design.py reads the TOML file, servers.py has the servers and their settings, perform.py runs it.
"""
