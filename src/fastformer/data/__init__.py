"""Files -> examples -> batches. Nothing here knows a model."""
