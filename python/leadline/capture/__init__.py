"""Captures: the directory, its manifest, its tables and views for reading."""
