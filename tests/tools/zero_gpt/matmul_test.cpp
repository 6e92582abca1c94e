// SPDX-License-Identifier: Apache-2.0
// The product against a naive one of the same chain of fused multiply-adds: equal bit for bit, on
// every instruction set that this processor has, in every form, wherever an element lies.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/seed.hpp"
#include "zero_gpt/layers.hpp"
#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {

template <typename T>
std::vector<T> random_values(std::uint64_t seed, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(random_normal(seed, count, i)) + static_cast<T>(1e-3);
  return values;
}

// Rows, columns and depth; the last ones are longer than a block.
struct Shape {
  int rows, columns, depth;
};
constexpr Shape kShapes[] = {{1, 1, 1},    {1, 97, 3},     {14, 32, 5},
                             {15, 33, 48}, {13, 31, 7},    {48, 144, 48},
                             {27, 27, 12}, {200, 65, 257}, {30, 600, 300}};

// How the operands lie: the forward pass's form, the gradient of activations, of weights,
// attention.
enum class Form { kForward, kActivations, kWeights, kBothTransposed };

template <typename T>
struct Case {
  Shape shape;
  std::vector<T> a, b, c, bias;
  Product<T> product;

  Case(const Shape& of, Form form, std::uint64_t seed)
      : shape(of),
        a(random_values<T>(seed, static_cast<std::size_t>(of.rows * of.depth))),
        b(random_values<T>(seed + 1, static_cast<std::size_t>(of.columns * of.depth))),
        c(random_values<T>(seed + 2, static_cast<std::size_t>(of.rows * (of.columns + 3)))),
        bias(random_values<T>(seed + 3, static_cast<std::size_t>(of.columns))) {
    const bool a_by_rows = form == Form::kForward || form == Form::kActivations;
    const bool b_by_rows = form == Form::kForward || form == Form::kWeights;
    product = {of.rows, of.columns, of.depth, {}, {}, c.data(), of.columns + 3};
    product.a = a_by_rows ? Operand<T>{a.data(), of.depth, 1} : Operand<T>{a.data(), 1, of.rows};
    product.b = b_by_rows ? Operand<T>{b.data(), 1, of.columns} : Operand<T>{b.data(), of.depth, 1};
    if (form == Form::kForward) product.bias = bias.data();
    product.add = form == Form::kWeights;
  }
};

template <typename T>
std::vector<T> naive(const Product<T>& p, std::vector<T> c) {
  for (int i = 0; i < p.rows; ++i)
    for (int j = 0; j < p.columns; ++j) {
      T& to = c[static_cast<std::size_t>(i * p.c_stride + j)];
      T sum = p.add ? to : p.bias != nullptr ? p.bias[j] : 0;
      for (int k = 0; k < p.depth; ++k)
        sum = std::fma(p.a.at[i * p.a.outer + k * p.a.inner], p.b.at[j * p.b.outer + k * p.b.inner],
                       sum);
      to = sum;
    }
  return c;
}

template <typename T>
void expect_naive_bits() {
  const std::uint64_t seed = draw_seed();
  std::vector<T> scratch(kScratchElements);
  for (const LayerSet& set : layer_sets())
    for (const Shape& shape : kShapes)
      for (const Form form :
           {Form::kForward, Form::kActivations, Form::kWeights, Form::kBothTransposed}) {
        Case<T> it(shape, form, seed);
        const std::vector<T> expected = naive(it.product, it.c);
        // In two parts, as two threads would.
        const int middle = shape.rows / 3;
        set.of<T>().multiply(it.product, {0, middle}, scratch.data());
        set.of<T>().multiply(it.product, {middle, shape.rows}, scratch.data());
        ASSERT_EQ(it.c, expected) << set.name << " " << shape.rows << " x " << shape.columns
                                  << " x " << shape.depth << " form " << static_cast<int>(form);
      }
}

TEST(Matmul, HasTheBitsOfANaiveChainInFloat) { expect_naive_bits<float>(); }
TEST(Matmul, HasTheBitsOfANaiveChainInDouble) { expect_naive_bits<double>(); }

// The same row of `a` gives the same row of the result, whatever rows stand before it.
TEST(Matmul, ARowsBitsDoNotDependOnItsPlaceInTheBatch) {
  constexpr int kColumns = 45, kDepth = 290, kMost = 40;
  const auto row = random_values<float>(1, kDepth);
  const auto b = random_values<float>(2, std::size_t{kColumns} * kDepth);
  std::vector<float> scratch(kScratchElements), first;
  for (const LayerSet& set : layer_sets())
    for (int rows = 1; rows <= kMost; rows += 3) {
      auto a = random_values<float>(static_cast<std::uint64_t>(rows + 3),
                                    static_cast<std::size_t>(rows) * kDepth);
      std::copy(row.begin(), row.end(), a.end() - kDepth);
      std::vector<float> c(static_cast<std::size_t>(rows) * kColumns);
      set.floats->multiply({rows,
                            kColumns,
                            kDepth,
                            {a.data(), kDepth, 1},
                            {b.data(), kDepth, 1},
                            c.data(),
                            kColumns},
                           {0, rows}, scratch.data());
      const std::vector<float> last(c.end() - kColumns, c.end());
      if (first.empty()) first = last;
      ASSERT_EQ(last, first) << set.name << " with " << rows << " rows";
    }
}

}  // namespace
}  // namespace tutti::gpt
