"""What is started: templates with their questions, schedules, hooks, the queue of what waits to start, and what is sent when a run ends."""
