"""What looks at a PostgreSQL server: its shared memory or SQL, its restarts, the pooler before it."""
