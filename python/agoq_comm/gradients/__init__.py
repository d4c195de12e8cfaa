"""Gradients in 8 bits: accumulated in fp32, stored and sent encoded, decoded for the optimizer.

The method is that of AGoQ (arXiv 2605.00539).
"""

from agoq_comm.gradients.optimizers import ChunkedOptimizer, GradientClipping, ShardedOptimizer
from agoq_comm.gradients.quantized_gradients import QuantizedGradients

__all__ = ["ChunkedOptimizer", "GradientClipping", "QuantizedGradients", "ShardedOptimizer"]
