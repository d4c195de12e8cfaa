// Rows: CudaRowCodec against RowCodec on the scalar reference.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "agoqcomm/cuda_row_codec.h"
#include "codec_inputs.h"
#include "kernel_cases.h"
#include "kernel_transcript.h"

namespace agoq::testing {
namespace {

/// A call, but for its numbers. The outputs are `rows`, `normed` and `encoded`.
struct RowCall {
  RowShape shape;
  DataType type = DataType::kBfloat16;
  int ranks = 3;
  int own_rank = 1;
  Family family = Family::kNormal;  ///< Of some pieces; the others are normal.
  bool residual = true;
  bool norm = true;
  bool weight = true;
  bool rows = true;
  bool normed = true;
  bool encoded = true;
  Rounding rounding = {};
  unsigned seed = 1;
};

/// One buffer on the host and its like on the device.
class Twin {
 public:
  Twin(Bytes bytes, int misalignment)
      : host(std::move(bytes)), device(std::ssize(host), misalignment, host) {}

  Bytes host;
  DeviceBuffer device;
};

class RowTranscript {
 public:
  explicit RowTranscript(const BlockFormat& format, int max_thread_blocks = 0)
      : transcript_(format),
        reference_(transcript_.reference()),
        cuda_(format, max_thread_blocks) {}

  std::string verdict() const { return transcript_.verdict(); }

  /// sum_decode() and apply(), with everything that the call asks for.
  void run(const RowCall& call) {
    start(call);
    const int misalignment = call.seed % 3 == 0 ? static_cast<int>(call.seed % 5) : 0;
    const DataType own_type = kTypes[call.seed % 3];
    const auto input = [&](DataType type, unsigned salt) {
      return Twin(elements(call.family, call.shape, type, call.seed + salt), misalignment);
    };
    std::vector<std::unique_ptr<Twin>> pieces;
    std::vector<const std::byte*> on_host, on_device;
    for (int rank = 0; rank < call.ranks; ++rank) {
      const Family family = rank == call.ranks / 2 ? call.family : Family::kNormal;
      pieces.push_back(std::make_unique<Twin>(
          encoded(family, call.shape, call.seed + 31u * static_cast<unsigned>(rank)),
          call.seed % 2 == 0 ? 0 : 4));
      on_host.push_back(rank == call.own_rank ? nullptr : pieces.back()->host.data());
      on_device.push_back(rank == call.own_rank ? nullptr : pieces.back()->device.data());
    }
    const bool owned = call.own_rank >= 0;
    const Twin own = input(own_type, 7), residual = input(call.type, 8),
               values = input(call.type, 9);
    const Twin weight(
        elements(Family::kNormal, {1, call.shape.width}, DataType::kFloat32, call.seed),
        misalignment);
    expect_like(
        call, residual, weight, "sum_decode",
        [&](void* out, const RowEpilogue& epilogue) {
          reference_.sum_decode(
              {on_host, owned ? own.host.data() : nullptr, own_type, call.own_rank}, call.shape,
              0.5f, out, call.type, epilogue);
        },
        [&](void* out, const RowEpilogue& epilogue) {
          cuda_.sum_decode(
              {on_device, owned ? own.device.data() : nullptr, own_type, call.own_rank}, call.shape,
              0.5f, out, call.type, nullptr, epilogue);
        });
    expect_like(
        call, residual, weight, "apply",
        [&](void* out, const RowEpilogue& epilogue) {
          reference_.apply(values.host.data(), call.type, call.shape, out, epilogue);
        },
        [&](void* out, const RowEpilogue& epilogue) {
          cuda_.apply(values.device.data(), call.type, call.shape, out, nullptr, epilogue);
        });
  }

  /// encode() and decode().
  void run_plain(const RowCall& call) {
    start(call);
    const Bytes values = elements(call.family, call.shape, call.type, call.seed);
    const DeviceBuffer in(std::ssize(values), call.seed % 2 == 0 ? 0 : 2, values);
    Bytes expected(static_cast<std::size_t>(encoded_bytes(call.shape)));
    reference_.encode(values.data(), call.type, call.shape, expected.data(), call.rounding);
    const DeviceBuffer out(std::ssize(expected));
    cuda_.encode(in.data(), call.type, call.shape, out.data(), nullptr, call.rounding);
    transcript_.expect_equal(transcript_.read(out), expected, "encoded rows");
    for (const DataType type : kTypes) {
      Bytes decoded(static_cast<std::size_t>(call.shape.rows * call.shape.width) * size_of(type));
      reference_.decode(expected.data(), call.shape, decoded.data(), type);
      const DeviceBuffer to(std::ssize(decoded), call.seed % 2 == 0 ? 0 : 2);
      cuda_.decode(out.data(), call.shape, to.data(), type, nullptr);
      transcript_.expect_equal(transcript_.read(to), decoded, "decoded rows");
    }
  }

  /// The sum takes the place of the owner's piece, or of the residual.
  void run_in_place(const RowCall& call) {
    start(call);
    const Bytes piece = encoded(Family::kNormal, call.shape, call.seed);
    const DeviceBuffer device_piece(std::ssize(piece), 0, piece);
    for (const bool is_residual : {false, true}) {
      Twin place(elements(call.family, call.shape, call.type, call.seed + 1), 0);
      Twin other(elements(Family::kNormal, call.shape, call.type, call.seed + 2), 0);
      Twin code(Bytes(static_cast<std::size_t>(encoded_bytes(call.shape))), 0);
      const std::byte* on_host[] = {nullptr, piece.data()};
      const std::byte* on_device[] = {nullptr, device_piece.data()};
      const auto epilogue = [&](void* residual, std::byte* out) {
        RowEpilogue result;
        result.residual = residual;
        result.norm = RmsNorm{};
        result.encoded = {out, call.shape.rows, 0};
        return result;
      };
      const Twin& own = is_residual ? other : place;
      const Twin& residual = is_residual ? place : other;
      cuda_.sum_decode({on_device, own.device.data(), call.type, 0}, call.shape, 1.0f,
                       place.device.data(), call.type, nullptr,
                       epilogue(residual.device.data(), code.device.data()));
      const Bytes residual_before = residual.host;
      reference_.sum_decode(
          {on_host, own.host.data(), call.type, 0}, call.shape, 1.0f, place.host.data(), call.type,
          epilogue(const_cast<std::byte*>(residual_before.data()), code.host.data()));
      transcript_.expect_equal(transcript_.read(place.device), place.host, "rows in place");
      transcript_.expect_equal(transcript_.read(code.device), code.host, "their encoding");
    }
  }

 private:
  std::int64_t encoded_bytes(RowShape shape) const {
    return RowLayout(reference_.format(), shape).total_bytes();
  }

  static Bytes elements(Family family, RowShape shape, DataType type, unsigned seed) {
    return make_input(family, type, shape.rows * shape.width, seed);
  }

  Bytes encoded(Family family, RowShape shape, unsigned seed) const {
    const Bytes values = elements(family, shape, DataType::kFloat32, seed);
    Bytes result(static_cast<std::size_t>(encoded_bytes(shape)));
    reference_.encode(values.data(), DataType::kFloat32, shape, result.data());
    return result;
  }

  void start(const RowCall& call) {
    transcript_.set_context(
        std::to_string(call.shape.rows) + " rows of " + std::to_string(call.shape.width) + " " +
        std::string(to_string(call.type)) + ", " + std::to_string(call.ranks) + " ranks, owner " +
        std::to_string(call.own_rank) + ", family " +
        std::to_string(static_cast<int>(call.family)) + ", seed " + std::to_string(call.seed));
    set_schedule(call.seed);
  }

  /// Runs the same call on the host and on the device and compares all outputs.
  template <class OnHost, class OnDevice>
  void expect_like(const RowCall& call, const Twin& residual, const Twin& weight,
                   const std::string& what, OnHost on_host, OnDevice on_device) {
    // Rows of the encoded buffer that others write: two before, one after.
    const RowShape whole{call.shape.rows + 3, call.shape.width};
    const Bytes nothing(residual.host.size(), std::byte{0xA5});
    const int misalignment = call.seed % 3 == 0 ? static_cast<int>(call.seed % 5) : 0;
    Twin rows(nothing, misalignment), normed(nothing, misalignment);
    Twin code(Bytes(static_cast<std::size_t>(encoded_bytes(whole)), std::byte{0xA5}), 0);
    const auto epilogue = [&](bool is_host) {
      const auto data = [&](const Twin& twin) -> std::byte* {
        return is_host ? const_cast<std::byte*>(twin.host.data()) : twin.device.data();
      };
      RowEpilogue result;
      if (call.residual) result.residual = data(residual);
      if (call.norm) result.norm = RmsNorm{.epsilon = 1e-5f};
      const void* factors = data(weight);
      if (call.weight) result.norm->weight = static_cast<const float*>(factors);
      if (call.normed) result.normed = data(normed);
      if (call.encoded) result.encoded = {data(code), whole.rows, 2};
      result.rounding = call.rounding;
      return result;
    };
    on_host(call.rows ? rows.host.data() : nullptr, epilogue(true));
    on_device(call.rows ? rows.device.data() : nullptr, epilogue(false));
    transcript_.expect_equal(transcript_.read(rows.device), rows.host, what + ": rows");
    transcript_.expect_equal(transcript_.read(normed.device), normed.host, what + ": normed rows");
    transcript_.expect_equal(transcript_.read(code.device), code.host, what + ": encoded rows");
  }

  KernelTranscript transcript_;
  const RowCodec reference_;
  const CudaRowCodec cuda_;
};

/// Less than a vector, less than a block, rows that start at any byte, short tails, whole blocks,
/// and several runs of squares.
constexpr std::int64_t kWidths[] = {1, 7, 40, 131, 136, 256, 999, 1032, 2048, 2057};

std::string rows_of_every_width(const BlockFormat& format) {
  RowTranscript transcript(format);
  unsigned seed = 0;
  for (const std::int64_t width : kWidths) {
    ++seed;
    const DataType type = kTypes[seed / 3 % 3];
    transcript.run({.shape = {3, width}, .type = type, .seed = seed});
    transcript.run_plain({.shape = {3, width}, .type = type, .seed = seed});
  }
  return transcript.verdict();
}

std::string rows_of_every_kind_of_input(const BlockFormat& format) {
  RowTranscript transcript(format);
  unsigned seed = 0;
  for (const Family family : kFamilies) {
    for (const DataType type : kTypes) {
      ++seed;
      transcript.run({.shape = {2, 331}, .type = type, .family = family, .seed = seed});
      transcript.run_plain({.shape = {2, 328}, .type = type, .family = family, .seed = seed});
    }
  }
  return transcript.verdict();
}

std::string rows_with_only_what_is_asked_for(const BlockFormat& format) {
  RowTranscript transcript(format, 1);  // which must take several turns
  RowCall call{.shape = {19, 144}, .ranks = 5};
  for (int asked = 0; asked < 32; ++asked) {
    call.residual = (asked & 1) != 0;
    call.norm = (asked & 2) != 0;
    call.rows = (asked & 4) != 0;
    call.normed = (asked & 8) != 0;
    call.encoded = (asked & 16) != 0;
    call.weight = call.norm && asked % 3 != 0;
    if (call.normed && !call.norm) continue;
    if (!call.rows && !call.normed && !call.encoded) continue;
    call.own_rank = asked % 6 - 1;
    call.seed = static_cast<unsigned>(asked);
    transcript.run(call);
  }
  return transcript.verdict();
}

std::string rows_of_one_to_sixteen_pieces(const BlockFormat& format) {
  RowTranscript transcript(format);
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (const int own_rank : {-1, 0, ranks / 2, ranks - 1}) {
      const auto seed = static_cast<unsigned>(5 * ranks + own_rank + 1);
      const Family family = kFamilies[seed % 10];
      transcript.run({.shape = {2, 147},
                      .ranks = ranks,
                      .own_rank = own_rank,
                      .family = family,
                      .seed = seed});
    }
  }
  return transcript.verdict();
}

std::string rows_by_chance(const BlockFormat& format) {
  RowTranscript transcript(format);
  for (const std::int64_t width : {296, 141}) {
    const Rounding rounding{.stochastic = true,
                            .seed = 77,
                            .call = 5,
                            .rank = 3,
                            .stage = 1,
                            .first_element = (std::int64_t{1} << 34) + 41};
    const RowCall call{.shape = {3, width}, .family = Family::kSpecials, .rounding = rounding};
    transcript.run(call);
    transcript.run_plain(call);
  }
  return transcript.verdict();
}

std::string rows_in_place(const BlockFormat& format) {
  RowTranscript transcript(format);
  for (const DataType type : kTypes) transcript.run_in_place({.shape = {9, 1160}, .type = type});
  return transcript.verdict();
}

}  // namespace

void append_row_cases(std::vector<KernelCase>& cases) {
  for (const ElementFormat element : kElements) {
    for (const int block : {32, 128, 512, 1024}) {
      // Every number of vectors a lane for the default format, one and several for the others.
      if (element != BlockFormat{}.element && (block == 32 || block == 512)) continue;
      const bool is_default = element == BlockFormat{}.element;
      const bool is_wide = block == 512 || (is_default && block == 1024);
      const BlockFormat format{element, block,
                               is_wide ? ScaleType::kFloat32 : ScaleType::kBfloat16};
      std::string suffix = format.name();
      std::replace(suffix.begin(), suffix.end(), '/', '_');
      const auto add = [&](const std::string& name, std::string (*check)(const BlockFormat&)) {
        cases.push_back({name + "_" + suffix, [=] { return check(format); }});
      };
      add("RowsOfEveryWidth", rows_of_every_width);
      add("RowsOfEveryKindOfInput", rows_of_every_kind_of_input);
      add("RowsWithOnlyWhatIsAskedFor", rows_with_only_what_is_asked_for);
      add("RowsOfOneToSixteenPieces", rows_of_one_to_sixteen_pieces);
      add("RowsByChance", rows_by_chance);
      add("RowsInPlace", rows_in_place);
    }
  }
}

}  // namespace agoq::testing
