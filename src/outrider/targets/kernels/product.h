// y = x w^T for few rows of x: each weight is read once, and each row's bits are its own.
//
// Every product y[m][n] has one vector of partial sums, filled in the order of the depth and added
// up in one fixed way. So its bits depend on row m of x and row n of w, and on nothing else.

#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "lanes.h"

namespace outrider {

// As many partial sums as the registers hold, for any rows of x and up to four of w.
#if defined(__AVX512F__)
constexpr int kSums = 24;
#else
constexpr int kSums = 8;
#endif
constexpr int64_t kMostRows = kSums / 2;  // of x that are multiplied at a time
constexpr int64_t kCacheLine = 64;
constexpr int64_t kFetchedAhead = 8192;  // bytes, at least

// How vectors of x and w are multiplied: float by float, or two narrow floats at a time where the
// processor adds such pairs up in float32.
struct Single {
  using Value = float;
  using Vector = Lanes;
  static constexpr int64_t kStep = kLanes;
  template <typename T>
  static Vector read(const T* p) { return load(p); }
  static Lanes add(Lanes sum, Vector x, Vector w) { return multiply_add(x, w, sum); }
};

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define OUTRIDER_HAS_PAIRS 1
struct Paired {
  using Value = c10::BFloat16;
  using Vector = Pairs;
  static constexpr int64_t kStep = 2 * kLanes;
  template <typename T>
  static Vector read(const T* p) { return load_pairs(p); }
  static Lanes add(Lanes sum, Vector x, Vector w) { return multiply_add(x, w, sum); }
};
#endif

// Fetch what is read after the `block` weights now in hand, from the k-th of a row on.
template <typename W>
inline void fetch_ahead(const W* row, int64_t k, int64_t block) {
  const int64_t bytes = block * sizeof(W);
  const int64_t blocks = (kFetchedAhead + bytes - 1) / bytes;
  if (k % (kCacheLine / static_cast<int64_t>(sizeof(W))) == 0)
    __builtin_prefetch(row + k + blocks * block, 0, 2);
}

// y [M, N] = x [M, depth] times the transpose of w [N, depth]. What comes after the N rows at
// `ahead` is fetched, if that is not null: after those with `n % turns == turn`, so that memory is
// as busy with the last rows of x as with the first.
template <typename Math, int M, int N, typename W, typename F>
inline void multiply_block(const typename Math::Value* x, const W* w, int64_t depth, float* y,
                           int64_t y_stride, const F* ahead, int64_t turns, int64_t turn) {
  static_assert(N <= 4);
  bool fetches[N];
  for (int n = 0; n < N; ++n) fetches[n] = ahead && n % turns == turn;
  Lanes sums[M][4] = {};
  const int64_t whole = depth / Math::kStep * Math::kStep;
  for (int64_t k = 0; k < whole; k += Math::kStep) {
    typename Math::Vector columns[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      columns[n] = Math::read(w + n * depth + k);
      if (fetches[n]) fetch_ahead(ahead + n * depth, k, N * depth);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const typename Math::Vector row = Math::read(x + m * depth + k);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n] = Math::add(sums[m][n], row, columns[n]);
    }
  }
#pragma GCC unroll 16
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
        total += static_cast<float>(x[m * depth + k]) * static_cast<float>(w[n * depth + k]);
      y[m * y_stride + n] = total;
    }
  }
}

// The same for a number of rows that is not known when this is compiled, up to M.
template <typename Math, int M, int N, typename W, typename F>
inline void multiply_up_to(int64_t rows, const typename Math::Value* x, const W* w, int64_t depth,
                           float* y, int64_t y_stride, const F* ahead, int64_t turns,
                           int64_t turn) {
  if (rows == M) {
    multiply_block<Math, M, N>(x, w, depth, y, y_stride, ahead, turns, turn);
  } else if constexpr (M > 1) {
    multiply_up_to<Math, M - 1, N>(rows, x, w, depth, y, y_stride, ahead, turns, turn);
  }
}

// All rows of x with N rows of w.
template <typename Math, int N, typename W, typename F>
inline void multiply_rows(int64_t rows, const typename Math::Value* x, const W* w, int64_t depth,
                          float* y, int64_t y_stride, const F* ahead) {
  constexpr int kMost = std::min<int>(kSums / N, kMostRows);
  const int64_t parts = (rows + kMost - 1) / kMost;
  for (int64_t part = 0, m = 0; part < parts; ++part) {
    const int64_t next = rows * (part + 1) / parts;
    multiply_up_to<Math, kMost, N>(next - m, x + m * depth, w, depth, y + m * y_stride, y_stride,
                                   ahead, parts, part);
    m = next;
  }
}

// Read `count` weights as wider ones, which is exact, so that several rows of x need do it once.
template <typename Math, typename W>
inline void widen(const W* w, int64_t count, typename Math::Value* wide) {
  int64_t k = 0;
  for (; k + Math::kStep <= count; k += Math::kStep) {
    store(wide + k, Math::read(w + k));
    fetch_ahead(w, k, count);
  }
  for (; k < count; ++k) wide[k] = static_cast<typename Math::Value>(w[k]);
}

// y [rows, columns] = x [rows, depth] times the transpose of w [columns, depth], N columns a time.
template <typename Math, int N, typename W>
void multiply_columns(const typename Math::Value* x, const W* w, float* y, int64_t rows,
                      int64_t columns, int64_t depth) {
  using Value = typename Math::Value;
  const int64_t blocks = (columns + N - 1) / N;
  const bool is_widened = !std::is_same_v<W, Value> && rows > kMostRows;
  const W* nothing = nullptr;
#pragma omp parallel
  {
    std::vector<Value> wide(is_widened ? N * depth : 0);
#pragma omp for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t n = b * N;
      const W* block = w + n * depth;
      if (n + N > columns) {
        for (; n < columns; ++n)
          multiply_rows<Math, 1>(rows, x, w + n * depth, depth, y + n, columns, nothing);
      } else if (is_widened) {
        widen<Math>(block, N * depth, wide.data());
        multiply_rows<Math, N>(rows, x, wide.data(), depth, y + n, columns, nothing);
      } else {
        multiply_rows<Math, N>(rows, x, block, depth, y + n, columns, block);
      }
    }
  }
}

// The same, in blocks that fit the rows: w is read once by all of them, if they are not too many.
template <typename Math, typename W>
void multiply(const typename Math::Value* x, const W* w, float* y, int64_t rows, int64_t columns,
              int64_t depth) {
  if (rows <= kSums / 4 || rows > kSums / 2)
    multiply_columns<Math, 4>(x, w, y, rows, columns, depth);
  else if (rows <= kSums / 3)
    multiply_columns<Math, 3>(x, w, y, rows, columns, depth);
  else
    multiply_columns<Math, 2>(x, w, y, rows, columns, depth);
}

}  // namespace outrider
