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

template <typename Block>
constexpr int64_t kVectors = Block::kCount / kLanes;

template <typename Block>
inline void read(const Block& block, Lanes (&wide)[kVectors<Block>]) {
  for (int64_t i = 0; i < kVectors<Block>; ++i) {
    const Lanes q = load(block.q + i * kLanes);
    if constexpr (requires { block.offset; })
      wide[i] = multiply_add(q, spread(block.scale), spread(block.offset));
    else
      wide[i] = q * block.scale;
  }
}

#if defined(__AVX512F__)
template <>
inline void read(const Nibbles& block, Lanes (&wide)[kVectors<Nibbles>]) {
  // All sixteen weights there can be; each q then finds its own by its place.
  const __m512 whole = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512 weights =
      _mm512_fmadd_ps(whole, _mm512_set1_ps(block.scale), _mm512_set1_ps(block.offset));
  const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)block.low_high));
  wide[0] = (Lanes)_mm512_permutexvar_ps(both, weights);
  wide[1] = (Lanes)_mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), weights);
}
#else
template <>
inline void read(const Nibbles& block, Lanes (&wide)[kVectors<Nibbles>]) {
  constexpr int64_t kHalf = Nibbles::kCount / 2;
  float numbers[Nibbles::kCount];
  for (int64_t i = 0; i < kHalf; ++i) {
    numbers[i] = static_cast<float>(block.low_high[i] & 15);
    numbers[i + kHalf] = static_cast<float>(block.low_high[i] >> 4);
  }
  for (int64_t i = 0; i < kVectors<Nibbles>; ++i)
    wide[i] = multiply_add(load(numbers + i * kLanes), spread(block.scale), spread(block.offset));
}
#endif

// Weights [columns, depth] in blocks, one row after the other; a row is whole blocks.
template <typename Block>
struct Blocked {
  using Read = void;
  using Stored = Block;
  static constexpr int64_t kCount = Block::kCount;
  const Block* blocks;
  int64_t depth;

  static constexpr int64_t kFewRows = 5;  // with more, widening once for all of them is worth it

  const Block* row(int64_t n) const { return blocks + n * depth / kCount; }

  template <typename Math>
  void widen(int64_t first, int64_t count, float* wide) const {
    const Block* block = row(first);
    for (int64_t k = 0; k < count * depth; k += kCount, ++block) {
      __builtin_prefetch(block + kAhead, 0, 2);
      Lanes vectors[kVectors<Block>];
      read(*block, vectors);
      for (int64_t i = 0; i < kVectors<Block>; ++i) store(wide + k + i * kLanes, vectors[i]);
    }
  }

  // Up to M rows of x with N of the weights, from the n-th on, which never leave the registers.
  template <int N, int M = kFewRows>
  void multiply(int64_t rows, const float* x, int64_t n, float* y, int64_t y_stride) const {
    if (rows == M)
      multiply_block<M, N>(x, n, y, y_stride);
    else if constexpr (M > 1)
      multiply<N, M - 1>(rows, x, n, y, y_stride);
  }

 private:
  static constexpr int64_t kAhead = kFetchedAhead / sizeof(Block);

  template <int M, int N>
  void multiply_block(const float* x, int64_t n, float* y, int64_t y_stride) const {
    Lanes sums[M][4] = {};
    const Block* block = row(n);
    const int64_t count = depth / kCount;
    for (int64_t b = 0; b < count; ++b, ++block) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        __builtin_prefetch(block + i * count + kAhead, 0, 2);
        Lanes wide[kVectors<Block>];
        read(block[i * count], wide);
        for (int64_t v = 0; v < kVectors<Block>; ++v)
          for (int m = 0; m < M; ++m)
            sums[m][i] =
                multiply_add(load(x + m * depth + b * kCount + v * kLanes), wide[v], sums[m][i]);
      }
    }
    for (int m = 0; m < M; ++m) {
      const Four totals = sums_of(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
      std::memcpy(y + m * y_stride, &totals, N * sizeof(float));
    }
  }
};

}  // namespace outrider
