// y = x w^T for few rows of x: each weight is read once, and each row's bits are its own.
//
// Every product y[m][n] has one vector of partial sums, filled in the order of the depth and added
// up in one fixed way. So its bits depend on row m of x and row n of w, and on nothing else.

#pragma once

#include <algorithm>
#include <memory>
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

// Keep a vector in a register: read anew for each use, as compilers like to, rows of x would take
// more time to read than to multiply.
template <typename V>
inline void keep([[maybe_unused]] V& vector) {
#if defined(__AVX512F__)
  asm("" : "+v"(vector));
#endif
}

// Fetch the line that a weight is in, if the weight begins one.
template <typename W>
inline void fetch(const W* row, int64_t k) {
  if (k % (kCacheLine / static_cast<int64_t>(sizeof(W))) == 0) __builtin_prefetch(row + k, 0, 2);
}

// y [M, N] = x [M, depth] times the transpose of w [N, depth]. The N rows at `ahead` are fetched,
// if that is not null: those with `n % turns == turn`, so that memory is as busy with the last rows
// of x as with the first. If it `Keeps` the weights, they lie in `wide` afterwards, as floats.
template <typename Math, int M, int N, bool Keeps, typename W, typename F>
inline void multiply_block(const typename Math::Value* x, const W* w, int64_t depth, float* y,
                           int64_t y_stride, const F* ahead, int64_t turns, int64_t turn,
                           [[maybe_unused]] typename Math::Value* wide) {
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
      if (fetches[n]) fetch(ahead + n * depth, k);
      if constexpr (Keeps) store(wide + n * depth + k, columns[n]);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      typename Math::Vector row = Math::read(x + m * depth + k);
      keep(row);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n] = Math::add(sums[m][n], row, columns[n]);
    }
  }
  if constexpr (Keeps)
    for (int n = 0; n < N; ++n)
      for (int64_t k = whole; k < depth; ++k)
        wide[n * depth + k] = static_cast<typename Math::Value>(w[n * depth + k]);
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

// How many rows of x are multiplied at a time: up to `kMost`, and the first of several parts that
// all rows are cut into has `kLeast` at least.
template <int N>
constexpr int kMost = std::min<int>(kSums / N, kMostRows);
template <int N>
constexpr int kLeast = (kMost<N> + 1) / 2;

// The same for a number of rows that is not known when this is compiled, up to M.
template <typename Math, int N, bool Keeps, int M = kMost<N>, typename W, typename F>
inline void multiply_up_to(int64_t rows, const typename Math::Value* x, const W* w, int64_t depth,
                           float* y, int64_t y_stride, const F* ahead, int64_t turns,
                           int64_t turn, typename Math::Value* wide) {
  if (rows == M) {
    multiply_block<Math, M, N, Keeps>(x, w, depth, y, y_stride, ahead, turns, turn, wide);
  } else if constexpr (M > (Keeps ? kLeast<N> : 1)) {
    multiply_up_to<Math, N, Keeps, M - 1>(rows, x, w, depth, y, y_stride, ahead, turns, turn, wide);
  }
}

// All rows of x with N rows of w. If they are too many to be multiplied at a time, the first keep
// the weights as floats for the others, where there is room to: `wide` is not null.
template <typename Math, int N, typename W, typename F>
inline void multiply_rows(int64_t rows, const typename Math::Value* x, const W* w, int64_t depth,
                          float* y, int64_t y_stride, const F* ahead,
                          typename Math::Value* wide = nullptr) {
  constexpr bool kIsWide = std::is_same_v<W, typename Math::Value>;
  const int64_t parts = (rows + kMost<N> - 1) / kMost<N>;
  for (int64_t part = 0, m = 0; part < parts; ++part) {
    const int64_t next = rows * (part + 1) / parts;
    const auto with = [&]<bool Keeps>(const auto* weights) {
      multiply_up_to<Math, N, Keeps>(next - m, x + m * depth, weights, depth, y + m * y_stride,
                                     y_stride, ahead, parts, part, wide);
    };
    if constexpr (N == 4 && !kIsWide) {
      if (!wide || parts == 1) with.template operator()<false>(w);
      else if (part == 0) with.template operator()<true>(w);
      else with.template operator()<false>(wide);
    } else {
      with.template operator()<false>(w);
    }
    m = next;
  }
}

// Weights [columns, depth] of one type, one row after the other.
template <typename W>
struct Dense {
  using Stored = W;
  static constexpr int64_t kCount = 1;  // weights in what is stored
  const W* weights;
  int64_t depth;

  // y [rows, N] = x times N of the weights, from the n-th on. In `wide` is room for them as floats.
  template <typename Math, int N>
  void multiply(const typename Math::Value* x, int64_t rows, int64_t n, float* y,
                int64_t y_stride, typename Math::Value* wide) const {
    const W* block = weights + n * depth;
    const W* ahead = block + distance(N);
    if constexpr (N > 1) {
      multiply_rows<Math, N>(rows, x, block, depth, y, y_stride, ahead, wide);
    } else {
      for (int64_t m = 0; m < rows; ++m)
        multiply_block<Math, 1, 1, false>(x + m * depth, block, depth, y + m * y_stride, y_stride,
                                          ahead, rows, m, wide);
    }
  }

 private:
  // How far ahead of N rows in hand memory is fetched.
  int64_t distance(int64_t n) const {
    const int64_t bytes = n * depth * sizeof(W);
    return (kFetchedAhead + bytes - 1) / bytes * n * depth;
  }
};

// Room for `count` values that begins a line of the cache: a vector that lies across two is slow.
template <typename T>
class Aligned {
 public:
  explicit Aligned(int64_t count) {
    size_t room = count * sizeof(T) + kCacheLine;
    bytes_ = std::make_unique_for_overwrite<char[]>(room);
    void* first = bytes_.get();
    first_ = static_cast<T*>(std::align(kCacheLine, count * sizeof(T), first, room));
  }
  T* data() { return first_; }

 private:
  std::unique_ptr<char[]> bytes_;
  T* first_;
};

// One of the products that are made of the same rows x: y [rows, columns] = x times the transpose
// of `weights` [columns, depth], times a scale of each column, plus a bias, where there are any.
template <typename Weights>
struct Product {
  Weights weights;
  float* y;
  int64_t columns;
  const float* scale;
  const float* bias;

  // x with N rows of the weights, those of block b. There is room in `wide` for them as floats.
  template <typename Math, int N>
  void multiply(const typename Math::Value* x, int64_t rows, int64_t b,
                typename Math::Value* wide) const {
    const int64_t first = b * N, last = std::min(first + N, columns);
    if (last == first + N)
      weights.template multiply<Math, N>(x, rows, first, y + first, columns, wide);
    else
      for (int64_t n = first; n < last; ++n)
        weights.template multiply<Math, 1>(x, rows, n, y + n, columns, wide);
  }

  void scale_row(int64_t m) const {
    float* row = y + m * columns;
    if (scale)
      for (int64_t n = 0; n < columns; ++n) row[n] *= scale[n];
    if (bias)
      for (int64_t n = 0; n < columns; ++n) row[n] += bias[n];
  }
};

// All products of x [rows, depth], N columns a time.
template <typename Math, int N, typename Weights>
void multiply_columns(const typename Math::Value* x, int64_t rows,
                      const std::vector<Product<Weights>>& products) {
  const auto blocks_of = [](const auto& product) { return (product.columns + N - 1) / N; };
  int64_t blocks = 0;
  for (const auto& product : products) blocks += blocks_of(product);
#pragma omp parallel
  {
    Aligned<typename Math::Value> wide(N * products[0].weights.depth);
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; ++block) {
      const Product<Weights>* product = products.data();
      int64_t b = block;
      for (; b >= blocks_of(*product); ++product) b -= blocks_of(*product);
      product->template multiply<Math, N>(x, rows, b, wide.data());
    }
    if (products[0].scale || products[0].bias)
#pragma omp for schedule(static)
      for (int64_t m = 0; m < rows; ++m)
        for (const auto& product : products) product.scale_row(m);
  }
}

// The same, in blocks that fit the rows: weights are read once by all, if they are not too many.
template <typename Math, typename Weights>
void multiply(const typename Math::Value* x, int64_t rows,
              const std::vector<Product<Weights>>& products) {
  // Weights in blocks are worked out once in any case.
  if constexpr (Weights::kCount == 1) {
    if (kSums / 4 < rows && rows <= kSums / 3) return multiply_columns<Math, 3>(x, rows, products);
    if (kSums / 3 < rows && rows <= kSums / 2) return multiply_columns<Math, 2>(x, rows, products);
  }
  multiply_columns<Math, 4>(x, rows, products);
}

}  // namespace outrider
