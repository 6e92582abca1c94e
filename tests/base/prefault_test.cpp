// SPDX-License-Identifier: Apache-2.0
#include "base/prefault.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

TEST(Prefault, MapsPagesAndKeepsWhatTheyHold) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = 8 * page_bytes;
  void* const made =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(made, MAP_FAILED);
  ::madvise(made, bytes, MADV_NOHUGEPAGE);
  // A kernel that is too old, or refuses, leaves them to faults.
  const bool can = ::madvise(made, page_bytes, MADV_POPULATE_WRITE) == 0;
  auto* const pages = static_cast<std::byte*>(made);
  pages[3 * page_bytes] = std::byte{7};
  prefault(pages + page_bytes + 100, 4 * page_bytes);  // all but the last two
  std::vector<unsigned char> there(8);
  ASSERT_EQ(::mincore(made, bytes, there.data()), 0);
  for (std::size_t i = 0; i < there.size(); ++i)
    EXPECT_EQ(there[i] & 1, (can ? i <= 5 : i == 3) ? 1 : 0) << i;
  EXPECT_EQ(pages[3 * page_bytes], std::byte{7});
  ::munmap(made, bytes);
}

}  // namespace
}  // namespace tutti
