"""Views of a capture: the shared questions, the terminal view, the report."""
