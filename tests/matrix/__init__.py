"""A matrix of planted troubles with ground truth: does a capture find each, at its object and at its cost?

    python -m tests.matrix --list
    python -m tests.matrix --majors 13,18 --only idle_holder --loops --json out.json

scenario.py: what a scenario is. ground.py: what it stands on. scenarios/: all of them. run.py: one of them on one major, and the verdict.
"""
