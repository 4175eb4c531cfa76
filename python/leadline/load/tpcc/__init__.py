"""A workload like that of TPC-C: its tables, its transactions, and what must hold of its rows.

It is not TPC-C: nobody audits it, and its figures may not be called tpmC.
"""

NAME = "tpcc-like"
TITLE = "TPC-C-like"
