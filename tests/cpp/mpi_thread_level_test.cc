// MPI initialized for the main thread only: the transport works there, and refuses other threads.
#include <gtest/gtest.h>

#include <thread>

#include "mpi_ranks.h"

namespace agoq::test {
namespace {

/// The error of `body` on a thread of its own, which has to name what to ask MPI for.
void expect_refused(const std::function<void()>& body) {
  std::thread([&] {
    try {
      body();
      ADD_FAILURE() << "a thread that MPI was not initialized for was let in";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("MPI_THREAD_SERIALIZED"), std::string::npos);
    }
  }).join();
}

TEST(MpiThreadLevel, FunneledIsTheMainThreadsAlone) {
  int level = 0;
  MPI_Query_thread(&level);
  if (level > MPI_THREAD_FUNNELED) GTEST_SKIP() << "this MPI gives more than it is asked for";
  const int world = MPI_Comm_c2f(MPI_COMM_WORLD);
  const auto transport = make_mpi_transport(world);
  transport->begin_call(label_of(1));
  expect_refused([&] { make_mpi_transport(world); });
}

}  // namespace
}  // namespace agoq::test

int main(int argc, char** argv) {
  try {
    agoq::make_mpi_transport(0);
    return 2;
  } catch (const agoq::Error& error) {
    if (error.code() != agoq::ErrorCode::kInvalidArgument) return 3;
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
