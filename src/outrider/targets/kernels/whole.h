// y = x w^T for drafters, whose arithmetic is free: rows and weights are whole numbers of eight
// bits with a scale a row. Sums of whole numbers are exact, so a row has the same bits in any pass.

#pragma once

#include <vector>

#include "packed.h"

namespace outrider {

constexpr int kMostTogether = 8;  // rows that are multiplied at a time

// Add to the sum of each column the products of its four weights with four values of a row.
#if defined(__AVX512VNNI__)
inline void add_products(Sums& sums, const uint8_t* w, int32_t four) {
  sums = (Sums)_mm512_dpbusd_epi32((__m512i)sums, _mm512_loadu_si512(w), _mm512_set1_epi32(four));
}
#elif defined(__AVX2__)
inline void add_products(Sums& sums, const uint8_t* w, int32_t four) {
  const __m256i values = _mm256_set1_epi32(four);
  const __m256i odd_values = _mm256_srai_epi16(values, 8);
  const __m256i even_values = _mm256_srai_epi16(_mm256_slli_epi16(values, 8), 8);
  for (int half = 0; half < 2; ++half) {
    const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w) + half);
    const __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(0xff));
    const __m256i odd = _mm256_srli_epi16(weights, 8);
    auto* part = reinterpret_cast<__m256i*>(&sums) + half;
    const __m256i both = _mm256_add_epi32(_mm256_madd_epi16(even, even_values),
                                          _mm256_madd_epi16(odd, odd_values));
    _mm256_storeu_si256(part, _mm256_add_epi32(_mm256_loadu_si256(part), both));
  }
}
#else
inline void add_products(Sums& sums, const uint8_t* w, int32_t four) {
  int8_t values[kTogether];
  std::memcpy(values, &four, sizeof(four));
  for (int64_t c = 0; c < kColumns; ++c)
    for (int64_t i = 0; i < kTogether; ++i) sums[c] += w[c * kTogether + i] * values[i];
}
#endif

// Rows [R, depth] as whole numbers from -127 to 127 times a scale each, filled up with zeros.
struct WholeRows {
  WholeRows(const float* x, int64_t count, int64_t depth);
  const int8_t* row(int64_t r) const { return values.data() + r * stride; }

  int64_t count, stride;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

inline WholeRows::WholeRows(const float* x, int64_t count, int64_t depth)
    : count(count), stride((depth + kTogether - 1) / kTogether * kTogether),
      values(count * stride), scales(count), sums(count) {
  typedef int8_t Narrow __attribute__((vector_size(kLanes)));
  for (int64_t r = 0; r < count; ++r, x += depth) {
    const float largest = largest_magnitude(x, depth);
    scales[r] = largest / 127;
    // Also false for a row that holds what is no number: it gives nothing then.
    const float inverse = largest > 0 && std::isfinite(largest) ? 127 / largest : 0;
    int8_t* to = values.data() + r * stride;
    IntLanes total = {};
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
      const IntLanes whole = rounded(load(x + k) * inverse);
      const Narrow narrow = __builtin_convertvector(whole, Narrow);
      std::memcpy(to + k, &narrow, sizeof(narrow));
      total += whole;
    }
    for (int i = 0; i < kLanes; ++i) sums[r] += total[i];
    for (; k < depth; ++k) {
      to[k] = static_cast<int8_t>(rounded(x[k] * inverse));
      sums[r] += to[k];
    }
  }
}

// Sums of M rows with a block of columns. Few rows have several sums each, so that none waits.
template <int M>
inline void add_block(const int8_t* x, int64_t stride, const uint8_t* w, int64_t steps,
                      Sums* sums) {
  constexpr int kParts = std::max(1, 8 / M);
  Sums parts[M][kParts] = {};
  const auto add = [&](int m, int part, int64_t step) {
    int32_t four;
    std::memcpy(&four, x + m * stride + step * kTogether, sizeof(four));
    add_products(parts[m][part], w + step * kStep, four);
  };
  int64_t step = 0;
  for (; step + kParts <= steps; step += kParts)
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) {
      __builtin_prefetch(w + (step + part) * kStep + kAhead, 0, 2);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) add(m, part, step + part);
    }
  for (; step < steps; ++step)
    for (int m = 0; m < M; ++m) add(m, 0, step);
  for (int m = 0; m < M; ++m) {
    sums[m] = parts[m][0];
    for (int part = 1; part < kParts; ++part) sums[m] += parts[m][part];
  }
}

template <int M = kMostTogether>
inline void add_up_to(int64_t count, const int8_t* x, int64_t stride, const uint8_t* w,
                      int64_t steps, Sums* sums) {
  if (count == M) {
    add_block<M>(x, stride, w, steps, sums);
  } else if constexpr (M > 1) {
    add_up_to<M - 1>(count, x, stride, w, steps, sums);
  }
}

// y [R, columns] = the layer's outputs for rows of x, on top of what is at `onto`, if not null.
inline void multiply_whole(const WholeRows& x, const PackedLayer& layer, const float* onto,
                           float* y) {
  const int64_t blocks = (layer.columns + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = layer.weights + b * layer.steps * kStep;
    const int64_t first = b * kColumns, width = std::min(kColumns, layer.columns - first);
    for (int64_t r = 0; r < x.count; r += kMostTogether) {
      Sums sums[kMostTogether];
      const int64_t count = std::min<int64_t>(kMostTogether, x.count - r);
      add_up_to(count, x.row(r), x.stride, w, layer.steps, sums);
      for (int64_t m = 0; m < count; ++m) {
        const Columns exact = __builtin_convertvector(sums[m] - kRaised * x.sums[r + m], Columns);
        const Columns scaled = exact * x.scales[r + m];
        const int64_t place = (r + m) * layer.columns + first;
        for (int64_t c = 0; c < width; ++c)
          y[place + c] = scaled[c] * layer.scales[first + c] + layer.offsets[first + c] +
                         (onto ? onto[place + c] : 0.0f);
      }
    }
  }
}

}  // namespace outrider
