"""Rows that ALTER TABLE left in an old form: which there are (pending), and rewriting them online (resolve)."""
