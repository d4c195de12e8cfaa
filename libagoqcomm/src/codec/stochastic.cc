#include "codec/stochastic.h"

#include <algorithm>

#include "format/formats.h"
#include "format/philox.h"
#include "format/scale.h"

namespace agoq {
namespace {

template <class Format>
void encode_block(const float* x, int block, const Rounding& rounding, std::int64_t first_element,
                  MutableEncodedBlocks out) {
  std::uint32_t absmax = 0;
  for (int i = 0; i < block; ++i) absmax = std::max(absmax, abs_bits(x[i]));
  const BlockScale scale = make_scale(absmax, Format::kMax, out.scale_type);
  store_scale(out.scales, 0, out.scale_type, scale.scale);
  PhiloxBlock words{};
  for (int i = 0; i < block; ++i) {
    const auto element = static_cast<std::uint64_t>(first_element + i);
    if (i == 0 || element % 4 == 0) {
      words =
          rounding_words(rounding.seed, element / 4, rounding.call, rounding.rank, rounding.stage);
    }
    const float uniform = to_uniform(words.word[element % 4]);
    const bool zero = scale.inverse == 0;
    Format::put(out.codes, i, zero ? 0 : Format::encode_stochastic(x[i], scale.inverse, uniform));
  }
}

}  // namespace

void encode_stochastic(ElementFormat format, const float* x, int block, const Rounding& rounding,
                       std::int64_t first_element, MutableEncodedBlocks out) {
  switch (format) {
#define AGOQ_FORMAT(enumerator, name, bits, type) \
  case ElementFormat::enumerator:                 \
    return encode_block<type>(x, block, rounding, first_element, out);
#include "format/formats.def"
#undef AGOQ_FORMAT
  }
}

}  // namespace agoq
