"""Who is there: users, groups, tokens, logins, one-time codes, and the secrets that they keep."""
