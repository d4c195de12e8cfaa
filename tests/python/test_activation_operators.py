"""quantize and dequantize: as functions, as operators of torch, and in compiled programs."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import agoq_comm
from agoq_comm import _C
from agoq_comm.activation import Format, Packed, dequantize, quantize
from agoq_comm.activation.formats import BITS

FORMATS = list(BITS)
# Relative RMS error on normally distributed numbers in blocks of 128.
ERRORS = {"fp4": 0.109, "int4": 0.117, "e2m3": 0.0265, "int6": 0.0265, "int8": 0.0065}
INPUTS = {
    "rows that are no multiple of a block": lambda: torch.randn(7, 33),
    "transposed": lambda: torch.randn(6, 40).t(),
    "sliced": lambda: torch.randn(9, 70)[:, ::3],
    "expanded": lambda: torch.randn(5, 1).expand(5, 44),
    "0-d": lambda: torch.randn(()),
    "empty": lambda: torch.randn(3, 0),
    "fp16": lambda: torch.randn(130).half(),
    "bf16": lambda: torch.randn(2, 3, 65).bfloat16(),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize("element", FORMATS)
def test_it_is_the_codec_on_the_row_major_order(element):
    for make in INPUTS.values():
        x = make()
        packed = quantize(x, f"{element}/64")
        encoded = agoq_comm.encode(x.contiguous(), format=element, block=64)
        assert torch.equal(packed.data, encoded.data)
        y = dequantize(packed)
        assert (y.shape, y.dtype, y.is_contiguous()) == (x.shape, x.dtype, True)
        assert torch.equal(y, agoq_comm.decode(encoded))


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("block", [32, 1024])
@pytest.mark.parametrize("scale", ["bf16", "fp32"])
def test_sizes_are_the_core_s(element, block, scale):
    format = Format(element, block, scale)
    codec = _C.Codec(element, block, scale, None)
    for numel in [*range(70), block - 1, block, block + 1, 5 * block + 3, 2**31 + 5]:
        assert format.encoded_bytes(numel) == codec.encoded_bytes(numel), numel
        offset = codec.scale_offset(numel)
        assert format.scale_bytes(numel) == codec.encoded_bytes(numel) - offset


@pytest.mark.parametrize("element", FORMATS)
def test_the_error_is_the_format_s(element):
    x = torch.randn(2**16)
    y = dequantize(quantize(x, element))
    assert ((y - x).norm() / x.norm()).item() == pytest.approx(ERRORS[element], rel=0.02)


def test_packed_tells_its_bytes():
    packed = quantize(torch.randn(4, 96).bfloat16(), "int8/128")
    assert packed.original_nbytes == 4 * 96 * 2
    assert packed.scale_nbytes == 3 * 2
    assert packed.nbytes == 4 * 96 + 6
    assert packed.format == Format("int8", 128)


def test_an_imaginary_part_is_negated_as_it_says():
    x = torch.randn(50, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert torch.equal(dequantize(quantize(x, "int8")), dequantize(quantize(x.clone(), "int8")))


def test_what_cannot_be_quantized_is_refused():
    with pytest.raises(TypeError, match=r"int64.*are quantized"):
        quantize(torch.arange(5), "int8")
    with pytest.raises(ValueError, match="there are fp4"):
        quantize(torch.randn(5), "fp5")
    with pytest.raises(ValueError, match="power of two"):
        Format.parse("int8/100")
    with pytest.raises(ValueError, match="element/block/scale"):
        Format.parse("int8/big")


def test_names_of_formats():
    assert Format.parse("fp4") == Format("fp4", 128, "bf16")
    assert Format.parse("e2m3/64/fp32") == Format("e2m3", 64, "fp32")
    for name in ("int4/32", "int8/1024/fp32"):
        assert str(Format.parse(name)) == name
    assert Format.parse("fp4").bits_per_element == 4.125


@pytest.mark.parametrize("element", FORMATS)
def test_opcheck(element):
    for x in (torch.randn(3, 50), torch.randn(8, 9).bfloat16().t(), torch.randn(0)):
        arguments = (element, 32, "bf16")
        torch.library.opcheck(torch.ops.agoq.quantize.default, (x, *arguments))
        data = torch.ops.agoq.quantize(x, *arguments)
        torch.library.opcheck(
            torch.ops.agoq.dequantize.default, (data, list(x.shape), x.dtype, *arguments)
        )


@pytest.mark.parametrize("element", FORMATS)
def test_compiled_whole_and_once_for_all_sizes(element):
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def roundtrip(x: torch.Tensor) -> tuple[torch.Tensor, Packed]:
        packed = quantize(x * 2, element)
        return dequantize(packed) + 1, packed

    for shape in ((7, 33), (4, 128), (300, 5)):
        x = torch.randn(shape)
        y, packed = roundtrip(x)
        expected = quantize(x * 2, element)
        assert torch.equal(packed.data, expected.data)
        assert packed.nbytes == expected.nbytes
        assert torch.equal(y, dequantize(expected) + 1)
    assert counter.frame_count == 1


def test_no_gradient_flows_and_none_is_kept():
    x = torch.randn(64, requires_grad=True)
    packed = quantize(x, "int8")
    assert not packed.data.requires_grad
    assert not dequantize(packed).requires_grad
