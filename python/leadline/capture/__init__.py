"""Captures: the folder, its manifest, its tables and views for reading."""
