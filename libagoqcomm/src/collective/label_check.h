// A call that moves no payload: every rank shows its label to every other.
#pragma once

#include <vector>

#include "agoqcomm/transport.h"
#include "collective/collective.h"
#include "collective/receive_set.h"

namespace agoq {

/// Not thread-safe.
class LabelCheck final : public Collective {
 public:
  explicit LabelCheck(Transport& transport) : transport_(transport) {}

  bool advance() override;
  Awaited awaited() const override;

 private:
  void post();

  Transport& transport_;
  bool posted_ = false;
  ReceiveSet receives_;
  std::vector<Ticket> sends_;
};

}  // namespace agoq
