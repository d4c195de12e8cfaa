// Calls that must be refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agoqcomm/error.h"

namespace agoq::testing {

void expect_error(ErrorCode code, const std::string& words, const auto& call) {
  try {
    call();
    FAIL() << "no error, expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

void expect_invalid(const std::string& words, const auto& call) {
  expect_error(ErrorCode::kInvalidArgument, words, call);
}

}  // namespace agoq::testing
