"""Experiments: two things compared in pairs of runs, with an interval, and a record of the machine it was done on.

paired.py has the order and the pairs, signed_rank.py ratios and intervals, blocks.py more than two levels or metrics, verdict.py the words,
simulated.py studies whose truth is known. interleave.py runs the pairs, machine.py says what they ran on, record.py where it is kept.
Nothing here knows what is compared. The first user is bench/.
"""
