// SPDX-License-Identifier: Apache-2.0
// Is this test built with a sanitizer? Memory and races are then what it looks for, and every step
// takes several times as long: where a test goes through very many cases, some of them do.
#pragma once

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tutti::test
