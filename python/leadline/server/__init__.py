"""leadline serve: the logbook as pages and as REST, for one person on loopback or for a team under rights.

operation.py has the one table row of which everything follows: the route, the OpenAPI text, the command of the shell, the check of rights
and the audit entry. table.py lists all operations, which are in accounts/, read/ and launch/. web/ alone imports the web packages; nothing
here is imported by what records.
"""
