"""The demo: a small shop on a private PostgreSQL, under a load with four troubles in it, captured and reported."""
