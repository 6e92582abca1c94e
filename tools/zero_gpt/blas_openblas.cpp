// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>

#include "zero_gpt/products.hpp"

namespace tutti::gpt {
namespace {

// As CBLAS describes an operand: row-major with a leading dimension, transposed or not.
CBLAS_TRANSPOSE transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }
blasint leading(const Operand<float>& operand) {
  return static_cast<blasint>(std::max(operand.outer, operand.inner));
}

void multiply(const Product<float>& p) {
  if (p.bias != nullptr)
    for (int i = 0; i < p.rows; ++i) std::copy_n(p.bias, p.columns, p.c + i * p.c_stride);
  const float beta = p.bias != nullptr || p.add ? 1 : 0;
  // a is [rows][depth] if its inner index is the fast one; b as [depth][columns] if it is not.
  cblas_sgemm(CblasRowMajor, transposed(p.a.inner != 1), transposed(p.b.inner == 1), p.rows,
              p.columns, p.depth, 1, p.a.at, leading(p.a), p.b.at, leading(p.b), beta, p.c,
              static_cast<blasint>(p.c_stride));
}

}  // namespace

std::optional<Blas> find_blas(int threads) {
  openblas_set_num_threads(threads);
  return Blas{openblas_get_config(), multiply};
}

}  // namespace tutti::gpt
