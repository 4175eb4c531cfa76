"""leadline top: the tables of a capture on a refreshing screen.

feed records into a temporary directory, live keeps the newest minutes of it in DuckDB with every view of a capture over them,
model asks these views for one Frame, and app (a screen) or text (one printed frame) shows it.
"""
