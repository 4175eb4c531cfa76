"""Loads that another tool has run and reported on, as captures: each figure as it was printed, and the sums that our own loads have.

fio.py, sysbench.py and hammerdb.py read the outputs, report.py writes the capture.
"""
