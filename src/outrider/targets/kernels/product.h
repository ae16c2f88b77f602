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
// of x as with the first.
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
      if (fetches[n]) fetch(ahead + n * depth, k);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      typename Math::Vector row = Math::read(x + m * depth + k);
      keep(row);
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

// Weights [columns, depth] of one type, one row after the other. They can be multiplied as they are
// read; those whose `Read` is void must be widened first.
template <typename W>
struct Dense {
  using Read = W;
  using Stored = W;
  static constexpr int64_t kCount = 1;  // weights in what is stored
  const W* weights;
  int64_t depth;

  // How far ahead of N rows in hand memory is fetched.
  int64_t distance(int64_t n) const {
    const int64_t bytes = n * depth * sizeof(W);
    return (kFetchedAhead + bytes - 1) / bytes * n * depth;
  }

  template <typename Math>
  void widen(int64_t first, int64_t count, typename Math::Value* wide) const {
    const W* row = weights + first * depth;
    const W* ahead = row + distance(count);
    int64_t k = 0;
    for (; k + Math::kStep <= count * depth; k += Math::kStep) {
      store(wide + k, Math::read(row + k));
      fetch(ahead, k);
    }
    for (; k < count * depth; ++k) wide[k] = static_cast<typename Math::Value>(row[k]);
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
// of `weights` [columns, depth].
template <typename Weights>
struct Product {
  Weights weights;
  float* y;
  int64_t columns;

  // x with N rows of the weights, those of block b. Weights that several rows of x need, or that
  // are not numbers yet, are widened once, to `wide`, which is exact.
  template <typename Math, int N>
  void multiply(const typename Math::Value* x, int64_t rows, int64_t b,
                typename Math::Value* wide) const {
    using Value = typename Math::Value;
    using Read = typename Weights::Read;
    const int64_t depth = weights.depth, n = b * N, count = std::min<int64_t>(N, columns - n);
    if constexpr (!std::is_void_v<Read>) {
      const bool is_widened = !std::is_same_v<Read, Value> && rows > kMostRows;
      const Read* block = weights.weights + n * depth;
      if (count == N && !is_widened) {
        multiply_rows<Math, N>(rows, x, block, depth, y + n, columns, block + weights.distance(N));
        return;
      }
    } else if (rows <= Weights::kFewRows && count == N) {
      weights.template multiply<N>(rows, x, n, y + n, columns);
      return;
    }
    const Value* nothing = nullptr;
    weights.template widen<Math>(n, count, wide);
    if (count == N) {
      multiply_rows<Math, N>(rows, x, wide, depth, y + n, columns, nothing);
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      multiply_rows<Math, 1>(rows, x, wide + i * depth, depth, y + n + i, columns, nothing);
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
  }
}

// The same, in blocks that fit the rows: weights are read once by all, if they are not too many.
template <typename Math, typename Weights>
void multiply(const typename Math::Value* x, int64_t rows,
              const std::vector<Product<Weights>>& products) {
  // What is widened lies in the nearest cache, to be read again by more rows.
  if (rows <= kSums / 4 || rows > kSums / 2 || std::is_void_v<typename Weights::Read>)
    multiply_columns<Math, 4>(x, rows, products);
  else if (rows <= kSums / 3)
    multiply_columns<Math, 3>(x, rows, products);
  else
    multiply_columns<Math, 2>(x, rows, products);
}

}  // namespace outrider
