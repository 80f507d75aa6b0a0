"""Masked words: learn from text without labels by filling in words that were hidden; a start for other tasks."""
