"""What is read from files without a server: pages, rows in old forms, the log, what tools of Informix print."""
