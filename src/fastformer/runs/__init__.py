"""What a training leaves: the run folder and its card."""
