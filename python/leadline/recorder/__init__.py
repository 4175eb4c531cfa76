"""The recorder that is always on: a directory of captures, each begun when the one before has ended, and what is kept of them."""
