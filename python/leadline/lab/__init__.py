"""Experiments: two things compared in pairs of runs, with an interval, and a record of the machine it was done on.

paired.py has the statistics, interleave.py runs the pairs, machine.py says what they ran on, record.py where it is kept.
Nothing here knows what is compared. The first user is bench/.
"""
