"""What is particular to PostgreSQL: finding a server, its catalog, private servers."""
