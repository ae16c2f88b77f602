// y = x w^T for few rows of x: each weight is read once, and each row's bits are its own.
//
// Every product y[m][n] has one vector of partial sums, filled in the order of the depth and added
// up in one fixed way. So its bits depend on row m of x and row n of w, and on nothing else.

#pragma once

#include <type_traits>
#include <vector>

#include "lanes.h"

namespace outrider {

// As many partial sums as the registers hold.
#if defined(__AVX512F__)
constexpr int kRowBlock = 6;
#else
constexpr int kRowBlock = 2;
#endif
constexpr int kColumnBlock = 4;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kFetchedAhead = 8192;  // bytes, at least
constexpr int64_t kWidenedDepth = 1024;  // a block of so many floats leaves room for x nearby

// Fetch what is read after the `block` weights now in hand, from the k-th of a row on.
template <typename W>
inline void fetch_ahead(const W* row, int64_t k, int64_t block) {
  const int64_t bytes = block * sizeof(W);
  const int64_t blocks = (kFetchedAhead + bytes - 1) / bytes;
  if (k % (kCacheLine / static_cast<int64_t>(sizeof(W))) == 0)
    __builtin_prefetch(row + k + blocks * block, 0, 2);
}

// `Ahead` fetches weights that come later while these are worked on.
template <int M, int N, bool Ahead, typename W>
inline void multiply_block(const float* x, const W* w, int64_t depth, float* y, int64_t y_stride) {
  static_assert(N <= 4);
  Lanes sums[M][4] = {};
  const int64_t whole = depth / kLanes * kLanes;
  for (int64_t k = 0; k < whole; k += kLanes) {
    Lanes columns[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      columns[n] = load(w + n * depth + k);
      if (Ahead) fetch_ahead(w + n * depth, k, N * depth);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Lanes row = load(x + m * depth + k);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n] = multiply_add(row, columns[n], sums[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const Four totals = sums_of(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    if (N == 4 && whole == depth) {
      std::memcpy(y + m * y_stride, &totals, sizeof(totals));
      continue;
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      float total = totals[n];
      for (int64_t k = whole; k < depth; ++k)
        total += x[m * depth + k] * static_cast<float>(w[n * depth + k]);
      y[m * y_stride + n] = total;
    }
  }
}

// All rows of x with N rows of w.
template <int N, bool Ahead, typename W>
inline void multiply_rows(int64_t rows, const float* x, const W* w, int64_t depth, float* y,
                          int64_t y_stride) {
  int64_t m = 0;
  if (rows >= kRowBlock) {
    multiply_block<kRowBlock, N, Ahead>(x, w, depth, y, y_stride);
    for (m = kRowBlock; m + kRowBlock <= rows; m += kRowBlock)
      multiply_block<kRowBlock, N, false>(x + m * depth, w, depth, y + m * y_stride, y_stride);
  }
  const float* rest = x + m * depth;
  float* out = y + m * y_stride;
  switch (rows - m) {
    case 1: multiply_block<1, N, Ahead>(rest, w, depth, out, y_stride); break;
#if defined(__AVX512F__)
    case 2: multiply_block<2, N, Ahead>(rest, w, depth, out, y_stride); break;
    case 3: multiply_block<3, N, Ahead>(rest, w, depth, out, y_stride); break;
    case 4: multiply_block<4, N, Ahead>(rest, w, depth, out, y_stride); break;
    case 5: multiply_block<5, N, Ahead>(rest, w, depth, out, y_stride); break;
#endif
    default: break;
  }
}

// Read `count` narrow weights as floats, which is exact, and fetch those that come later.
template <typename W>
inline void widen(const W* w, int64_t count, float* wide) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    store(wide + k, load(w + k));
    fetch_ahead(w, k, count);
  }
  for (; k < count; ++k) wide[k] = static_cast<float>(w[k]);
}

// y [rows, columns] = x [rows, depth] times the transpose of w [columns, depth].
template <typename W>
void multiply(const float* x, const W* w, float* y, int64_t rows, int64_t columns, int64_t depth) {
  const int64_t blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const bool is_widened =
      !std::is_same_v<W, float> && rows > kRowBlock && depth <= kWidenedDepth;
#pragma omp parallel
  {
    std::vector<float> wide(is_widened ? kColumnBlock * depth : 0);
#pragma omp for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t n = b * kColumnBlock;
      const W* block = w + n * depth;
      if (n + kColumnBlock > columns) {
        for (; n < columns; ++n)
          multiply_rows<1, false>(rows, x, w + n * depth, depth, y + n, columns);
      } else if (is_widened) {
        widen(block, kColumnBlock * depth, wide.data());
        multiply_rows<kColumnBlock, false>(rows, x, wide.data(), depth, y + n, columns);
      } else {
        multiply_rows<kColumnBlock, true>(rows, x, block, depth, y + n, columns);
      }
    }
  }
}

}  // namespace outrider
