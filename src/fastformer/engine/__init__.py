"""Training any task: settings, one `fit`, and what they stand on. It knows tasks by their contract alone."""
