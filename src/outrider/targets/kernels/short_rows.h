// y = x w^T for weights of eight bits, with rows of x as whole numbers of sixteen bits.
//
// Neighbours in a row share a scale, so that a value far above the others costs those near it some
// bits and no more. Sums of whole numbers are exact: a row has the same bits in any pass, on any
// processor, and by whichever instructions they were added up.

#pragma once

#include <limits>
#include <vector>

#include "packed.h"

namespace outrider {

constexpr int64_t kGroup = 128;  // neighbours that share a scale: their sums fit 32 bits
constexpr float kLargestShort = 32639;  // 127 * 256 + 127: each byte of it has a sign of its own

// Rows [count, depth], filled up with zeros to whole steps. Of four neighbours the order is
// 0, 2, 1, 3, as that is how pairs of weights are taken out of fours.
struct ShortRows {
  ShortRows(const float* x, int64_t count, int64_t depth);
  const int16_t* row(int64_t r) const { return values.data() + r * stride; }

  int64_t count, stride, groups;
  std::vector<int16_t> values;
  std::vector<float> scales;     // [count, groups]
  std::vector<int32_t> offsets;  // likewise: takes off what the 128 on top of weights adds to a sum

 private:
  void fill(const float* x, int64_t width, int16_t* to, float& scale, int32_t& offset);
};

// Of every four numbers the second and third swapped.
inline IntLanes in_pairs(IntLanes v) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#else
  return __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7);
#endif
}

inline ShortRows::ShortRows(const float* x, int64_t count, int64_t depth)
    : count(count), stride((depth + kTogether - 1) / kTogether * kTogether),
      groups((depth + kGroup - 1) / kGroup), values(count * stride), scales(count * groups),
      offsets(count * groups) {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t g = 0; g < groups; ++g)
      fill(x + r * depth + g * kGroup, std::min(kGroup, depth - g * kGroup),
           values.data() + r * stride + g * kGroup, scales[r * groups + g],
           offsets[r * groups + g]);
}

// The smallest power of two that leaves no more than the largest short of numbers up to `largest`.
// None, 0, for numbers so small that theirs has no inverse.
inline float short_scale(float largest) {
  int exponent;
  const float least = largest / kLargestShort, half = std::frexp(least, &exponent);
  return least < std::numeric_limits<float>::min() ? 0
                                                   : std::ldexp(1.0f, exponent - (half == 0.5f));
}

inline void ShortRows::fill(const float* x, int64_t width, int16_t* to, float& scale,
                            int32_t& offset) {
  scale = short_scale(largest_magnitude(x, width));
  const float spoilt = no_number_in(x, width);
  if (scale == 0 || spoilt != 0) {
    scale = spoilt;
    return;
  }
  const float inverse = 1 / scale;
  typedef int16_t Narrow __attribute__((vector_size(2 * kLanes)));
  IntLanes totals = {};
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    const IntLanes whole = rounded(load(x + k) * inverse);
    const Narrow narrow = __builtin_convertvector(in_pairs(whole), Narrow);
    std::memcpy(to + k, &narrow, sizeof(narrow));
    totals += whole;
  }
  int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += totals[i];
  for (; k < width; ++k) {
    constexpr int kPlaces[kTogether] = {0, 2, 1, 3};
    const int32_t whole = rounded(x[k] * inverse);
    to[k / kTogether * kTogether + kPlaces[k % kTogether]] = static_cast<int16_t>(whole);
    total += whole;
  }
  offset = -kRaised * total;
}

// Add to the sum of each column the products of two of its weights, the even ones of four or the
// odd ones, with two values of a row.
#if defined(__AVX512BW__)
typedef __m512i Shorts;
inline Shorts even_weights(const uint8_t* w) {
  return _mm512_and_si512(_mm512_loadu_si512(w), _mm512_set1_epi16(0xff));
}
inline Shorts odd_weights(const uint8_t* w) {
  return _mm512_srli_epi16(_mm512_loadu_si512(w), 8);
}
inline void add_pairs(Sums& sums, Shorts weights, int32_t two) {
  const __m512i values = _mm512_set1_epi32(two);
#if defined(__AVX512VNNI__)
  sums = (Sums)_mm512_dpwssd_epi32((__m512i)sums, weights, values);
#else
  sums += (Sums)_mm512_madd_epi16(weights, values);
#endif
}
#elif defined(__AVX2__)
struct Shorts {
  __m256i halves[2];
};
inline Shorts even_weights(const uint8_t* w) {
  const auto* from = reinterpret_cast<const __m256i*>(w);
  const __m256i low = _mm256_set1_epi16(0xff);
  return {{_mm256_and_si256(_mm256_loadu_si256(from), low),
           _mm256_and_si256(_mm256_loadu_si256(from + 1), low)}};
}
inline Shorts odd_weights(const uint8_t* w) {
  const auto* from = reinterpret_cast<const __m256i*>(w);
  return {{_mm256_srli_epi16(_mm256_loadu_si256(from), 8),
           _mm256_srli_epi16(_mm256_loadu_si256(from + 1), 8)}};
}
inline void add_pairs(Sums& sums, Shorts weights, int32_t two) {
  const __m256i values = _mm256_set1_epi32(two);
  auto* halves = reinterpret_cast<__m256i*>(&sums);
  for (int half = 0; half < 2; ++half)
    halves[half] =
        _mm256_add_epi32(halves[half], _mm256_madd_epi16(weights.halves[half], values));
}
#else
typedef int16_t Shorts __attribute__((vector_size(kColumns * 4)));
inline Shorts even_weights(const uint8_t* w) {
  Shorts weights;
  for (int64_t i = 0; i < 2 * kColumns; ++i) weights[i] = w[2 * i];
  return weights;
}
inline Shorts odd_weights(const uint8_t* w) { return even_weights(w + 1); }
inline void add_pairs(Sums& sums, Shorts weights, int32_t two) {
  int16_t values[2];
  std::memcpy(values, &two, sizeof(two));
  for (int64_t c = 0; c < kColumns; ++c)
    sums[c] += weights[2 * c] * values[0] + weights[2 * c + 1] * values[1];
}
#endif

// How many rows, and blocks of columns, are multiplied at a time: their sums fill the registers.
#if defined(__AVX512BW__)
constexpr int kShortSums = 24, kWide = 2;
#else
constexpr int kShortSums = 5, kWide = 1;
#endif
constexpr int kMostShort = kShortSums / kWide;

// Sums of M rows, from step `first` on, with G neighbouring blocks of columns.
template <int M, int G>
inline void add_group(const ShortRows& x, int64_t r, int64_t group, const uint8_t* w,
                      int64_t w_stride, int64_t steps, Sums (&sums)[M][G]) {
  // Few rows have several sums each, so that none waits.
  constexpr bool kIsSplit = 2 * M * G <= kShortSums;
  Sums others[M][G] = {};
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
    for (int g = 0; g < G; ++g) sums[m][g] = x.offsets[(r + m) * x.groups + group] + Sums{};
  const int16_t* values = x.row(r) + group * kGroup;
  for (int64_t step = 0; step < steps; ++step, w += kStep, values += kTogether) {
    Shorts even[G], odd[G];
#pragma GCC unroll 2
    for (int g = 0; g < G; ++g) {
      __builtin_prefetch(w + g * w_stride + kAhead, 0, 2);
      even[g] = even_weights(w + g * w_stride);
      odd[g] = odd_weights(w + g * w_stride);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      int32_t two[2];
      std::memcpy(two, values + m * x.stride, sizeof(two));
#pragma GCC unroll 2
      for (int g = 0; g < G; ++g) {
        add_pairs(sums[m][g], even[g], two[0]);
        add_pairs(kIsSplit ? others[m][g] : sums[m][g], odd[g], two[1]);
      }
    }
  }
  if constexpr (kIsSplit)
    for (int m = 0; m < M; ++m)
      for (int g = 0; g < G; ++g) sums[m][g] += others[m][g];
}

// Write outputs of a block of columns: sums times the scale of each column, plus its offset.
inline void put_columns(const PackedLayer& layer, int64_t b, Columns total, float* y) {
  const int64_t first = b * kColumns, width = std::min(kColumns, layer.columns - first);
  for (int64_t c = 0; c < width; ++c) {
    const float scaled = total[c] * layer.scales[first + c];
    y[first + c] = layer.offsets ? scaled + layer.offsets[first + c] : scaled;
  }
}

// y [M rows from r on, G blocks of columns from b on].
template <int M, int G>
inline void multiply_short_block(const ShortRows& x, int64_t r, const PackedLayer& layer,
                                 int64_t b, float* y) {
  Columns totals[M][G] = {};
  constexpr int64_t kSteps = kGroup / kTogether;
  for (int64_t group = 0; group < x.groups; ++group) {
    Sums sums[M][G];
    const int64_t first = group * kSteps;
    add_group<M, G>(x, r, group, layer.block(b) + first * kStep, layer.steps * kStep,
                    std::min(kSteps, layer.steps - first), sums);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
      for (int g = 0; g < G; ++g)
        totals[m][g] += __builtin_convertvector(sums[m][g], Columns) *
                        x.scales[(r + m) * x.groups + group];
  }
  for (int m = 0; m < M; ++m)
    for (int g = 0; g < G; ++g)
      put_columns(layer, b + g, totals[m][g], y + (r + m) * layer.columns);
}

template <int G, int M = kMostShort>
inline void multiply_short_up_to(int64_t count, const ShortRows& x, int64_t r,
                                 const PackedLayer& layer, int64_t b, float* y) {
  if (count == M) multiply_short_block<M, G>(x, r, layer, b, y);
  else if constexpr (M > 1) multiply_short_up_to<G, M - 1>(count, x, r, layer, b, y);
}

// A layer of several that read the same rows, and where its outputs go: y [rows, columns].
struct PackedProduct {
  PackedLayer layer;
  float* y;
};

// All rows with the blocks of columns from b on, `kWide` at most.
inline void multiply_short(const ShortRows& x, const PackedProduct& product, int64_t b) {
  const PackedLayer& layer = product.layer;
  const int64_t parts = (x.count + kMostShort - 1) / kMostShort;
  for (int64_t part = 0, r = 0; part < parts; ++part) {
    const int64_t next = x.count * (part + 1) / parts;
    if (b + kWide <= layer.blocks())
      multiply_short_up_to<kWide>(next - r, x, r, layer, b, product.y);
    else
      for (int64_t one = b; one < layer.blocks(); ++one)
        multiply_short_up_to<1>(next - r, x, r, layer, one, product.y);
    r = next;
  }
}

// All products of the rows, each by blocks of columns that workers share out.
template <typename Use>
void each_block(const std::vector<PackedProduct>& products, int64_t wide, Use use) {
  const auto parts_of = [&](const auto& product) {
    return (product.layer.blocks() + wide - 1) / wide;
  };
  int64_t parts = 0;
  for (const auto& product : products) parts += parts_of(product);
#pragma omp for schedule(static)
  for (int64_t part = 0; part < parts; ++part) {
    const PackedProduct* product = products.data();
    int64_t p = part;
    for (; p >= parts_of(*product); ++product) p -= parts_of(*product);
    use(*product, p * wide);
  }
}

inline void multiply_short_by_vectors(const ShortRows& x,
                                      const std::vector<PackedProduct>& products) {
#pragma omp parallel
  each_block(products, kWide, [&](const PackedProduct& product, int64_t b) {
    multiply_short(x, product, b);
  });
}

}  // namespace outrider
