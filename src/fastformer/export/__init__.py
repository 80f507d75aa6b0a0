"""A trained run as one ONNX file, for machines without PyTorch or for smaller, faster serving."""
