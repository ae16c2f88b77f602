// Weights of eight bits, packed for products of whole numbers, and the layers made of them.

#pragma once

#include <algorithm>
#include <cmath>

#include "lanes.h"

namespace outrider {

// Weights are stored in blocks of `kColumns` columns, of which `kTogether` neighbours in depth lie
// side by side: [columns / 16, depth / 4, 16, 4], plus 128, filled up with zeros (which are 128).
constexpr int64_t kColumns = 16;
constexpr int64_t kTogether = 4;
constexpr int64_t kStep = kColumns * kTogether;
constexpr int32_t kRaised = 128;
constexpr int64_t kAhead = 4096;  // bytes that are fetched ahead

typedef int32_t Sums __attribute__((vector_size(kColumns * 4)));
typedef float Columns __attribute__((vector_size(kColumns * 4)));

// A layer: its weights as stored, and of each column a scale, and an offset where there is one.
struct PackedLayer {
  const uint8_t* weights;
  const float* scales;
  const float* offsets;  // may be null
  int64_t columns, steps;  // of depth

  int64_t blocks() const { return (columns + kColumns - 1) / kColumns; }
  const uint8_t* block(int64_t b) const { return weights + b * steps * kStep; }
};

// The nearest whole number, of two as near the one further from zero: to the bit, whether a number
// is rounded among others or by itself, as where vectors end depends on the processor.
inline IntLanes rounded(Lanes x) {
  const Lanes half = x < 0.0f ? Lanes{} - 0.5f : Lanes{} + 0.5f;
  return __builtin_convertvector(x + half, IntLanes);
}
inline int32_t rounded(float x) { return static_cast<int32_t>(x + (x < 0 ? -0.5f : 0.5f)); }

inline float largest_magnitude(const float* x, int64_t count) {
  Lanes most = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const Lanes part = load(x + k), size = part < 0.0f ? -part : part;
    most = size > most ? size : most;
  }
  float largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = std::max(largest, most[i]);
  for (; k < count; ++k) largest = std::max(largest, std::abs(x[k]));
  return largest;
}

// Zero, or no number if one of so many is none or infinite.
inline float no_number_in(const float* x, int64_t count) {
  Lanes spoilt = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) spoilt += load(x + k) * 0.0f;
  for (; k < count; ++k) spoilt[0] += x[k] * 0.0f;
  return sums_of(spoilt, spoilt, spoilt, spoilt)[0];
}

}  // namespace outrider
