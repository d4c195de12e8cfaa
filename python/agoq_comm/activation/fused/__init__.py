"""Layers as autograd functions that keep their quantized input and compute the rest again."""
