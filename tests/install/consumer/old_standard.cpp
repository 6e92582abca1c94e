// SPDX-License-Identifier: Apache-2.0
// A program of another standard that uses tutti.h: the package does not change its language.
#include <tutti/tutti.h>

static_assert(__cplusplus == 201703L, "the package changed the language");

int main() {
  int version = 0;
  return tuttiGetVersion(&version) == tuttiSuccess && version == TUTTI_VERSION_CODE ? 0 : 1;
}
