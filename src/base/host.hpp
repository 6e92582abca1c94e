// SPDX-License-Identifier: Apache-2.0
// This machine and this process, as far as ranks must know: names and identities that tell who can
// share memory with whom, what the kernel permits, how many cores and how much cache there is.
// Probes really try; they never print and never fail, they say no. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// gethostname, at most 255 bytes; "localhost" if it is empty.
[[nodiscard]] std::string host_name();

// Equal for processes that can share memory and reach each other's loopback: 64-bit hash of the
// kernel's boot id and the network namespace. `override_text` (TUTTI_HOST_ID), if not empty, is
// hashed instead. Without /proc: hash of the host's name. Never 0.
[[nodiscard]] std::uint64_t host_identity(std::string_view override_text);

// Identifies this boot of the kernel, and so tells whether times and pids of a record are still
// valid here. 0: unknown.
[[nodiscard]] std::uint64_t boot_identity();

// Random, one per process, equal in all its threads; another one in a forked child. Never 0.
[[nodiscard]] std::uint64_t process_token();
// Returns the address of this process's token, a word that a peer can read to check that a pid is
// this process.
[[nodiscard]] std::uint64_t process_token_address();

// 64-bit FNV-1a with a final mix. Stable: it travels between hosts.
[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes,
                                       std::uint64_t seed = 0xcbf29ce484222325u);

// pidfd_open works and the descriptor can be polled.
[[nodiscard]] bool has_pidfd();
// memfd_create works with sealing, and the memory can be sized and mapped shared.
[[nodiscard]] bool has_memfd();
// process_vm_readv reads another process of this user: tried on a child forked for it (about a
// millisecond; the answer is kept). Call it before threads that hold locks across fork.
[[nodiscard]] bool has_cross_memory_attach();

// Cores this thread may use: the affinity mask, cut by the control group's quota (rounded up).
// At least 1.
[[nodiscard]] int usable_cpus();
// Cores of this machine that its control group's quota leaves, whatever this process is bound to.
// At least 1.
[[nodiscard]] int machine_cpus();
// Bytes of the level 2 and level 3 cache seen by the first CPU; 0: unknown.
[[nodiscard]] std::size_t l2_cache_bytes();
[[nodiscard]] std::size_t l3_cache_bytes();

}  // namespace tutti
