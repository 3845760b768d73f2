"""What makes a run."""
