// SPDX-License-Identifier: Apache-2.0
// Which Fold serves a (type, operation): the one list, for the device's kernels, the host's
// emulation and the tests. Averages are sums; products of integers wrap the same with and without a
// sign. So 12 types and NCCL's 5 operations need 45 folds; copies need none (one kernel by bytes).
//
//   visit_fold(type, op, [&]<class Fold>() { ... });     false where there is no such type or op
#pragma once

#include "base/types.hpp"
#include "kernels/device/accumulate.hpp"

namespace tutti::device {

inline constexpr int kFoldCount = 45;

template <class Element, class ProductElement = Element, class Visitor>
bool visit_operation(ReduceOp op, Visitor&& visit) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      visit.template operator()<Fold<Element, Sum>>();
      return true;
    case ReduceOp::kProd:
      visit.template operator()<Fold<ProductElement, Product>>();
      return true;
    case ReduceOp::kMax:
      visit.template operator()<Fold<Element, Maximum>>();
      return true;
    case ReduceOp::kMin:
      visit.template operator()<Fold<Element, Minimum>>();
      return true;
    default:  // bitwise and logical operations run on the host alone
      return false;
  }
}

template <class Visitor>
bool visit_integer_fold(DataType type, ReduceOp op, Visitor&& visit) {
  using U8 = Integer<std::uint8_t>;
  using U32 = Integer<std::uint32_t>;
  using U64 = Integer<std::uint64_t>;
  switch (type) {
    case DataType::kInt8:
      return visit_operation<Integer<std::int8_t>, U8>(op, visit);
    case DataType::kUint8:
      return visit_operation<U8>(op, visit);
    case DataType::kInt32:
      return visit_operation<Integer<std::int32_t>, U32>(op, visit);
    case DataType::kUint32:
      return visit_operation<U32>(op, visit);
    case DataType::kInt64:
      return visit_operation<Integer<std::int64_t>, U64>(op, visit);
    case DataType::kUint64:
      return visit_operation<U64>(op, visit);
    default:
      return false;
  }
}

template <class Visitor>
bool visit_float_fold(DataType type, ReduceOp op, Visitor&& visit) {
  switch (type) {
    case DataType::kFloat16:
      return visit_operation<Float16>(op, visit);
    case DataType::kFloat32:
      return visit_operation<Real<float>>(op, visit);
    case DataType::kFloat64:
      return visit_operation<Real<double>>(op, visit);
    case DataType::kBfloat16:
      return visit_operation<BrainFloat16>(op, visit);
    default:
      return false;
  }
}

template <class Visitor>
bool visit_float8_fold(DataType type, ReduceOp op, Visitor&& visit) {
  switch (type) {
    case DataType::kFloat8e4m3:
      return visit_operation<Float8e4m3>(op, visit);
    case DataType::kFloat8e5m2:
      return visit_operation<Float8e5m2>(op, visit);
    default:
      return false;
  }
}

template <class Visitor>
bool visit_fold(DataType type, ReduceOp op, Visitor&& visit) {
  return visit_integer_fold(type, op, visit) || visit_float_fold(type, op, visit) ||
         visit_float8_fold(type, op, visit);
}

}  // namespace tutti::device
