"""Experiments: two commands run in pairs, by a design that is in the book before the first trial begins, and a verdict.

design.py says what is asked, perform.py runs it within a run of the book, ingest.py takes its events into the store, query.py reads
them again, and drawing.py draws them. The statistics are leadline.lab's.
"""
