"""The logbook: every run of leadline, and every command given to `leadline run`, recorded by itself.

What runs appends events to a spool of its own (spool.py) and never waits for anything else: a store that is locked, full or damaged
changes neither its output nor its exit code. Who looks at the book takes the spools into the store first (ingest.py, store.py).
"""
