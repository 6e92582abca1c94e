// SPDX-License-Identifier: Apache-2.0
// The C boundary of reduction operations that a program makes.
#include <fmt/core.h>
#include <tutti/user_op.h>

#include <cstring>

#include "api/config.hpp"
#include "api/handle.hpp"
#include "base/call.hpp"

using namespace tutti;

namespace {

tuttiRedOp_t add(OpenCall& communicator, const MadeOp& op) {
  return static_cast<tuttiRedOp_t>(tuttiFirstMadeOp + communicator->made_ops().add(op));
}

void reduce(const UserOp& op, const void* in, void* inout, std::size_t count, DataType type) {
  reinterpret_cast<tuttiReduceFn_t>(op.function)(in, inout, count,
                                                 static_cast<tuttiDataType_t>(type), op.context);
}

}  // namespace

extern "C" {

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar, tuttiDataType_t datatype,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm) {
  constexpr const char* kName = "tuttiRedOpCreatePreMulSum";
  return guarded(kName, comm, [&]() -> Status {
    if (op == nullptr || scalar == nullptr)
      return bad_argument(kName, fmt::format("{} is NULL", op == nullptr ? "op" : "scalar"));
    TUTTI_TRY_ASSIGN(const DataType type, check_type(kName, value_of(datatype)));
    if (value_of(residence) == tuttiScalarDevice)
      return make_error(Code::kNotSupported,
                        fmt::format("{}: the scalar must be in host memory; pass "
                                    "tuttiScalarHostImmediate",
                                    kName));
    if (value_of(residence) != tuttiScalarHostImmediate)
      return bad_argument(
          kName, fmt::format("{} is not a valid tuttiScalarResidence_t", value_of(residence)));
    TUTTI_TRY_ASSIGN(OpenCall communicator, enter_handle(comm, kName));
    PreMulSum made{.type = type};
    std::memcpy(made.scalar.data(), scalar, element_bytes(made.type));
    *op = add(communicator, made);
    return {};
  });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
  constexpr const char* kName = "tuttiRedOpDestroy";
  return guarded(kName, comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    const int number = value_of(op);
    if (number >= tuttiFirstMadeOp && communicator->made_ops().remove(number - tuttiFirstMadeOp))
      return {};
    return bad_argument(kName, fmt::format("{} is not an operation that was made for this "
                                           "communicator",
                                           number));
  });
}

tuttiResult_t tuttiRedOpCreateUser(tuttiRedOp_t* op, tuttiReduceFn_t function, void* context,
                                   int commutative, tuttiComm_t comm) {
  constexpr const char* kName = "tuttiRedOpCreateUser";
  return guarded(kName, comm, [&]() -> Status {
    if (op == nullptr || function == nullptr)
      return bad_argument(kName, fmt::format("{} is NULL", op == nullptr ? "op" : "function"));
    TUTTI_TRY_ASSIGN(OpenCall communicator, enter_handle(comm, kName));
    *op = add(communicator,
              UserOp{reduce, reinterpret_cast<void (*)()>(function), context, commutative != 0});
    return {};
  });
}

}  // extern "C"
