// Calls that must be refused before any kernel starts.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cuemu/cuemu.h"
#include "expect_error.h"

namespace agoq::testing {

void expect_refused(ErrorCode code, const std::string& words, const auto& call) {
  const std::uint64_t before = cuemu::launches();
  expect_error(code, words, call);
  EXPECT_EQ(cuemu::launches(), before);
}

void expect_refused(const std::string& words, const auto& call) {
  expect_refused(ErrorCode::kInvalidArgument, words, call);
}

}  // namespace agoq::testing
