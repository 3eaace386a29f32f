"""Texts to unit vectors: sentence encoders, in torch or ONNX Runtime."""
