// Weights as they lie in a GGUF file's blocks: whole numbers, with a scale and an offset a block.
//
// A weight is q * scale + offset, rounded once to float32. It is widened in registers, to the very
// float that an expanded copy of the file would hold, so that a product has the bits it would have
// with that copy, and reads a fraction of its bytes.

#pragma once

#include "product.h"

namespace outrider {

// `kCount` neighbours of a row that share a scale, stored as they are read.
struct Nibbles {  // q from 0 to 15; the first half of them in the low bits
  static constexpr int64_t kCount = 32;
  float scale, offset;
  uint8_t low_high[kCount / 2];
};
struct Bytes {  // q from -128 to 127, and no offset
  static constexpr int64_t kCount = 32;
  float scale;
  int8_t q[kCount];
};
struct ShortBytes {
  static constexpr int64_t kCount = 16;
  float scale;
  int8_t q[kCount];
};
struct OffsetBytes {
  static constexpr int64_t kCount = 32;
  float scale, offset;
  int8_t q[kCount];
};

// The v-th vector of a block's weights.
template <typename Block>
inline Lanes read(const Block& block, int64_t v) {
  const Lanes q = load(block.q + v * kLanes);
  if constexpr (requires { block.offset; })
    return multiply_add(q, spread(block.scale), spread(block.offset));
  else
    return q * block.scale;
}

#if defined(__AVX512F__)
inline Lanes read(const Nibbles& block, int64_t v) {
  // All sixteen weights there can be; each q then finds its own by its place.
  const __m512 whole = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512 weights =
      _mm512_fmadd_ps(whole, _mm512_set1_ps(block.scale), _mm512_set1_ps(block.offset));
  const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)block.low_high));
  return (Lanes)_mm512_permutexvar_ps(v == 0 ? both : _mm512_srli_epi32(both, 4), weights);
}
#else
inline Lanes read(const Nibbles& block, int64_t v) {
  constexpr int64_t kHalf = Nibbles::kCount / 2 / kLanes;  // of the vectors
  const IntLanes both = load_whole(block.low_high + v % kHalf * kLanes);
  const Lanes q = __builtin_convertvector(v < kHalf ? both & 15 : both >> 4, Lanes);
  return multiply_add(q, spread(block.scale), spread(block.offset));
}
#endif

// Weights [columns, depth] in blocks, one row after the other; a row is whole blocks.
template <typename Block>
struct Blocked {
  using Stored = Block;
  static constexpr int64_t kCount = Block::kCount;
  const Block* blocks;
  int64_t depth;

  const Block* row(int64_t n) const { return blocks + n * depth / kCount; }

  // The n-th row as floats.
  void widen(int64_t n, float* wide) const {
    const Block* block = row(n);
    for (int64_t k = 0; k < depth; k += kCount, ++block) {
      __builtin_prefetch(block + kAhead, 0, 2);
      for (int64_t v = 0; v < kVectors; ++v) store(wide + k + v * kLanes, read(*block, v));
    }
  }

  // y [rows, N] = x times N of the weights, from the n-th on. What does not stay in the registers
  // until all rows have met it is kept in `wide` by the first.
  template <typename Math, int N>
  void multiply(const float* x, int64_t rows, int64_t n, float* y, int64_t y_stride,
                float* wide) const {
    const float* nothing = nullptr;
    int64_t first = 0;
    if constexpr (N == 1) {
      widen(n, wide);
    } else {
      const int64_t parts = (rows + kMost<N> - 1) / kMost<N>;
      if (parts <= 1) return multiply_up_to<N, false>(rows, x, n, y, y_stride, wide);
      first = rows / parts;
      multiply_up_to<N, true>(first, x, n, y, y_stride, wide);
    }
    multiply_rows<Math, N>(rows - first, x + first * depth, wide, depth, y + first * y_stride,
                           y_stride, nothing);
  }

 private:
  static constexpr int64_t kVectors = kCount / kLanes;
  static constexpr int64_t kAhead = kFetchedAhead / sizeof(Block);

  template <int N, bool Keeps, int M = kMost<N>>
  void multiply_up_to(int64_t rows, const float* x, int64_t n, float* y, int64_t y_stride,
                      float* wide) const {
    if (rows == M)
      multiply_block<M, N, Keeps>(x, n, y, y_stride, wide);
    else if constexpr (M > (Keeps ? kLeast<N> : 1))
      multiply_up_to<N, Keeps, M - 1>(rows, x, n, y, y_stride, wide);
  }

  template <int M, int N, bool Keeps>
  void multiply_block(const float* x, int64_t n, float* y, int64_t y_stride,
                      [[maybe_unused]] float* wide) const {
    Lanes sums[M][4] = {};
    const int64_t count = depth / kCount;
    const Block* block = row(n);
    for (int64_t b = 0; b < count; ++b, ++block, x += kCount) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) __builtin_prefetch(block + i * count + kAhead, 0, 2);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        Lanes columns[N];
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          columns[i] = read(block[i * count], v);
          if constexpr (Keeps) store(wide + i * depth + b * kCount + v * kLanes, columns[i]);
        }
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          Lanes row = load(x + m * depth + v * kLanes);
          keep(row);
#pragma GCC unroll 4
          for (int i = 0; i < N; ++i) sums[m][i] = multiply_add(row, columns[i], sums[m][i]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      const Four totals = sums_of(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
      std::memcpy(y + m * y_stride, &totals, N * sizeof(float));
    }
  }
};

}  // namespace outrider
