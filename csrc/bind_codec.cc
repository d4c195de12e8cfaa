// agoq_comm._C.Codec and CudaCodec: the core's codecs on addresses. python/agoq_comm/codec.py owns
// the checks of what lies behind an address; users meet only that.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/row_codec.h"
#include "bindings.h"
#include "py_names.h"

namespace agoq {
namespace {

using Address = std::uintptr_t;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

BlockFormat make_format(const std::string& element, int block, const std::string& scale) {
  BlockFormat format;
  format.element = parse_element_format(element);
  format.block = block;
  format.scale = parse_scale_type(scale);
  format.validate();
  return format;
}

Codec make_codec(const std::string& element, int block, const std::string& scale,
                 const std::optional<std::string>& isa) {
  const BlockFormat format = make_format(element, block, scale);
  return isa ? Codec(format, parse_name<CpuIsa>(*isa)) : Codec(format);
}

Pieces make_pieces(std::vector<const std::byte*>& storage, const std::vector<Address>& encoded,
                   Address own, const std::string& own_type, int own_rank) {
  for (Address address : encoded) storage.push_back(at<const std::byte>(address));
  Pieces pieces;
  pieces.encoded = storage;
  pieces.own = at<const void>(own);
  pieces.own_type = parse_name<DataType>(own_type);
  pieces.own_rank = own_rank;
  return pieces;
}

/// The codec of a CUDA device and the stream it works on, with the functions of Codec.
class CodecOnStream {
 public:
  CodecOnStream(const std::string& element, int block, const std::string& scale, Address stream)
      : codec_(make_format(element, block, scale)), stream_(at<void>(stream)) {}

  void encode(const void* values, DataType type, std::int64_t count, std::byte* encoded,
              const Rounding& rounding) const {
    codec_.encode(values, type, count, encoded, stream_, rounding);
  }
  void decode(const std::byte* encoded, std::int64_t count, void* values, DataType type) const {
    codec_.decode(encoded, count, values, type, stream_);
  }
  void decode_accumulate(const std::byte* encoded, std::int64_t count, float* accumulator) const {
    codec_.decode_accumulate(encoded, count, accumulator, stream_);
  }
  void sum_decode(const Pieces& pieces, std::int64_t count, float factor, void* values,
                  DataType type) const {
    codec_.sum_decode(pieces, count, factor, values, type, stream_);
  }
  void sum_encode(const Pieces& pieces, std::int64_t count, float factor, std::byte* encoded,
                  void* values, DataType type, const Rounding& rounding) const {
    codec_.sum_encode(pieces, count, factor, encoded, values, type, stream_, rounding);
  }

 private:
  const CudaCodec codec_;
  void* const stream_;
};

template <typename AnyCodec>
void encode(const AnyCodec& codec, Address values, const std::string& type, std::int64_t count,
            Address encoded, const Rounding& rounding) {
  codec.encode(at<const void>(values), parse_name<DataType>(type), count, at<std::byte>(encoded),
               rounding);
}

template <typename AnyCodec>
void decode(const AnyCodec& codec, Address encoded, std::int64_t count, Address values,
            const std::string& type) {
  codec.decode(at<const std::byte>(encoded), count, at<void>(values), parse_name<DataType>(type));
}

template <typename AnyCodec>
void decode_accumulate(const AnyCodec& codec, Address encoded, std::int64_t count,
                       Address accumulator) {
  codec.decode_accumulate(at<const std::byte>(encoded), count, at<float>(accumulator));
}

template <typename AnyCodec>
void sum_decode(const AnyCodec& codec, const std::vector<Address>& encoded, Address own,
                const std::string& own_type, int own_rank, std::int64_t count, float factor,
                Address values, const std::string& type) {
  std::vector<const std::byte*> storage;
  codec.sum_decode(make_pieces(storage, encoded, own, own_type, own_rank), count, factor,
                   at<void>(values), parse_name<DataType>(type));
}

template <typename AnyCodec>
void sum_encode(const AnyCodec& codec, const std::vector<Address>& pieces, Address own,
                const std::string& own_type, int own_rank, std::int64_t count, float factor,
                Address encoded, Address values, const std::string& type,
                const Rounding& rounding) {
  std::vector<const std::byte*> storage;
  codec.sum_encode(make_pieces(storage, pieces, own, own_type, own_rank), count, factor,
                   at<std::byte>(encoded), at<void>(values), parse_name<DataType>(type), rounding);
}

template <typename AnyCodec>
void bind_functions(py::class_<AnyCodec>& type) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  type.def("encode", &encode<AnyCodec>, Unlocked())
      .def("decode", &decode<AnyCodec>, Unlocked())
      .def("decode_accumulate", &decode_accumulate<AnyCodec>, Unlocked())
      .def("sum_decode", &sum_decode<AnyCodec>, Unlocked())
      .def("sum_encode", &sum_encode<AnyCodec>, Unlocked());
}

void encode_rows(const Codec& codec, Address values, const std::string& type, std::int64_t rows,
                 std::int64_t width, Address encoded, const Rounding& rounding) {
  RowCodec(codec).encode(at<const void>(values), parse_name<DataType>(type), {rows, width},
                         at<std::byte>(encoded), rounding);
}

void decode_rows(const Codec& codec, Address encoded, std::int64_t rows, std::int64_t width,
                 Address values, const std::string& type) {
  RowCodec(codec).decode(at<const std::byte>(encoded), {rows, width}, at<void>(values),
                         parse_name<DataType>(type));
}

}  // namespace

void bind_codec(py::module_& module) {
  py::class_<Rounding>(module, "Rounding")
      .def(py::init<>())
      .def_readwrite("stochastic", &Rounding::stochastic)
      .def_readwrite("seed", &Rounding::seed)
      .def_readwrite("call", &Rounding::call)
      .def_readwrite("rank", &Rounding::rank)
      .def_readwrite("stage", &Rounding::stage)
      .def_readwrite("first_element", &Rounding::first_element);

  py::class_<Codec> codec(module, "Codec");
  codec
      .def(py::init(&make_codec), py::arg("element"), py::arg("block"), py::arg("scale"),
           py::arg("isa") = py::none())
      .def_property_readonly("format", [](const Codec& codec) { return codec.format().name(); })
      .def_property_readonly("isa",
                             [](const Codec& codec) { return std::string(to_string(codec.isa())); })
      .def("encoded_bytes",
           [](const Codec& codec, std::int64_t count) {
             return WireLayout(codec.format(), count).total_bytes();
           })
      .def("scale_offset",
           [](const Codec& codec, std::int64_t count) {
             return WireLayout(codec.format(), count).scale_offset();
           })
      .def("encoded_rows_bytes",
           [](const Codec& codec, std::int64_t rows, std::int64_t width) {
             return RowLayout(codec.format(), {rows, width}).total_bytes();
           })
      .def("encode_rows", &encode_rows, py::call_guard<py::gil_scoped_release>())
      .def("decode_rows", &decode_rows, py::call_guard<py::gil_scoped_release>());
  bind_functions(codec);

  py::class_<CodecOnStream> cuda_codec(module, "CudaCodec");
  cuda_codec.def(py::init<const std::string&, int, const std::string&, Address>(),
                 py::arg("element"), py::arg("block"), py::arg("scale"), py::arg("stream"));
  bind_functions(cuda_codec);

  module.def("supported_cpu_isas", [] {
    std::vector<std::string> names;
    for (CpuIsa isa : Named<CpuIsa>::kAll) {
      if (is_supported(isa)) names.emplace_back(to_string(isa));
    }
    return names;
  });
}

}  // namespace agoq
