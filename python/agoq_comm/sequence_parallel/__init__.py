"""Sequence parallelism over quantized collectives: what Megatron-LM's functions do, in 8 bits.

Activations travel encoded on the way forward and gradients on the way back, each by choice. Blocks
run along the hidden dimension, and never across rows or the parts of two ranks. The method is that
of AGoQ (arXiv 2605.00539), whose release leaves these collectives in bf16.
"""

from agoq_comm.sequence_parallel.linear import ColumnParallelLinear, RowParallelLinear
from agoq_comm.sequence_parallel.megatron import MegatronPatch, patch_megatron
from agoq_comm.sequence_parallel.norms import Normed, gather_normed, reduce_scatter_norm, rms_norm
from agoq_comm.sequence_parallel.policy import (
    EXACT,
    QuantizationPolicy,
    default_policy,
    set_default_policy,
    use_policy,
)
from agoq_comm.sequence_parallel.regions import (
    all_gather_last_dim_from_tensor_parallel_region,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_last_dim_to_tensor_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
    scatter_to_tensor_model_parallel_region,
)

__all__ = [
    "EXACT",
    "ColumnParallelLinear",
    "MegatronPatch",
    "Normed",
    "QuantizationPolicy",
    "RowParallelLinear",
    "all_gather_last_dim_from_tensor_parallel_region",
    "copy_to_tensor_model_parallel_region",
    "default_policy",
    "gather_from_sequence_parallel_region",
    "gather_from_tensor_model_parallel_region",
    "gather_normed",
    "patch_megatron",
    "reduce_from_tensor_model_parallel_region",
    "reduce_scatter_last_dim_to_tensor_parallel_region",
    "reduce_scatter_norm",
    "reduce_scatter_to_sequence_parallel_region",
    "rms_norm",
    "scatter_to_sequence_parallel_region",
    "scatter_to_tensor_model_parallel_region",
    "set_default_policy",
    "use_policy",
]
