"""Damages of relation files that a page alone does not show, made on purpose: for tests of what finds them."""
