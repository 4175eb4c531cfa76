"""What gathers evidence while a capture is taken, and `take`, which runs it."""
