#include "agoqcomm/transport.h"

#include "agoqcomm/error.h"

namespace agoq {

void Transport::begin_pair_call(const Label&, int) {
  throw Error(ErrorCode::kUnsupported,
              "the " + std::string(name()) +
                  " transport has calls of the whole group only, no send and receive");
}

}  // namespace agoq
