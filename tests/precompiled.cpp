// SPDX-License-Identifier: Apache-2.0
// Has no code: CMake compiles precompiled.hpp for it, and the tests reuse the result.
