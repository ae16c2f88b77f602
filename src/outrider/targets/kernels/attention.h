// Attention of few rows over cached keys, in which every row has the same bits whatever else is in
// the pass, and wherever the nodes of a draft tree are stored.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "product.h"

namespace outrider {

// Where a row is stored and what it sees: the first `prefix` tokens of its slot, then those of the
// tokens after them whose bits are set (its ancestors in a draft tree, from the root down).
struct Row {
  int64_t slot, place, prefix;
  const uint64_t* branch;
  int64_t words;  // of the branch, 64 nodes each
};

template <typename T>
struct Cache {
  T* data;
  int64_t heads, tokens, width;
  T* head(int64_t slot, int64_t h) const { return data + (slot * heads + h) * tokens * width; }
};

// The tokens a row sees, oldest first.
inline void seen_tokens(const Row& row, int64_t window, std::vector<int64_t>& seen) {
  int64_t branch = 0;
  for (int i = 0; i < row.words; ++i) branch += std::popcount(row.branch[i]);
  const int64_t position = row.prefix + branch - 1;
  const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
  seen.clear();
  for (int64_t token = first; token < row.prefix; ++token) seen.push_back(token);
  int64_t depth = 0;
  for (int i = 0; i < row.words; ++i)
    for (uint64_t bits = row.branch[i]; bits != 0; bits &= bits - 1, ++depth)
      if (row.prefix + depth >= first)
        seen.push_back(row.prefix + 64 * i + std::countr_zero(bits));
}

// Turn scores into weights that sum to the returned number.
inline float soften(float* scores, int64_t count, float softcap) {
  if (softcap > 0)
    for (int64_t k = 0; k < count; ++k) scores[k] = softcap * std::tanh(scores[k] / softcap);
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(scores + count, scores + padded, -std::numeric_limits<float>::infinity());
  Lanes peaks = load(scores);
  for (int64_t k = kLanes; k < padded; k += kLanes) {
    const Lanes others = load(scores + k);
    peaks = others > peaks ? others : peaks;
  }
  float most = peaks[0];
  for (int i = 1; i < kLanes; ++i) most = std::max(most, peaks[i]);
  Lanes total = {};
  for (int64_t k = 0; k < padded; k += kLanes) {
    const Lanes weights = exp_of_negative(load(scores + k) - most);
    store(scores + k, weights);
    total += weights;
  }
  return sums_of(total, total, total, total)[0];
}

// out[g] = the mean of the values, by weight, for G heads and `kLanes` * C components.
template <int G, int C, typename T>
inline void mix_block(const T* values, int64_t width, const std::vector<int64_t>& seen,
                      const float* weights, int64_t stride, const float* totals, T* out) {
  Lanes sums[G][C] = {};
  for (size_t k = 0; k < seen.size(); ++k) {
    const T* value = values + seen[k] * width;
    Lanes parts[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) parts[c] = load(value + c * kLanes);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const Lanes weight = spread(weights[g * stride + k]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sums[g][c] = multiply_add(parts[c], weight, sums[g][c]);
    }
  }
  for (int g = 0; g < G; ++g)
    for (int c = 0; c < C; ++c) {
      const Lanes mean = sums[g][c] / totals[g];
      for (int i = 0; i < kLanes; ++i) out[g * width + c * kLanes + i] = static_cast<T>(mean[i]);
    }
}

template <int G, typename T>
inline void mix(const T* values, int64_t width, const std::vector<int64_t>& seen,
                const float* weights, int64_t stride, const float* totals, T* out) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes)
    mix_block<G, 4>(values + c, width, seen, weights, stride, totals, out + c);
  for (; c + kLanes <= width; c += kLanes)
    mix_block<G, 1>(values + c, width, seen, weights, stride, totals, out + c);
  for (int g = 0; g < G; ++g)
    for (int64_t i = c; i < width; ++i) {
      float sum = 0;
      for (size_t k = 0; k < seen.size(); ++k)
        sum += static_cast<float>(values[seen[k] * width + i]) * weights[g * stride + k];
      out[g * width + i] = static_cast<T>(sum / totals[g]);
    }
}

// The scores of a query with `kLanes` keys, which `key(i)` points to, filled up to that many.
template <typename Key>
inline Lanes score_block(const float* query, int64_t width, Key key) {
  Lanes sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    Lanes part = load(query + k);
    keep(part);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sums[i] = multiply_add(load(key(i) + k), part, sums[i]);
  }
  Lanes scores = sums_of_each(sums);
  for (; k < width; ++k)
    for (int i = 0; i < kLanes; ++i) scores[i] += query[k] * key(i)[k];
  return scores;
}

// The scores of `group` queries [group, width] with every token seen, `stride` apart.
template <typename T>
inline void score(const float* queries, int64_t group, const T* keys, int64_t width,
                  const std::vector<int64_t>& seen, float* scores, int64_t stride,
                  std::vector<float>& wide) {
  const int64_t count = seen.size();
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t last = std::min<int64_t>(k + kLanes, count) - 1;
    const auto each = [&](auto key) {
      for (int64_t g = 0; g < group; ++g)
        store(scores + g * stride + k, score_block(queries + g * width, width, key));
    };
    const T* first = keys + seen[k] * width;
    const bool is_run = last - k + 1 == kLanes && seen[last] - seen[k] == last - k;
    if constexpr (std::is_same_v<T, float>) {
      if (is_run) {
        each([&](int64_t i) { return first + i * width; });
        continue;
      }
    }
    // Keys that are narrow, or do not lie side by side, are widened or brought there once for all.
    for (int64_t i = 0; i < kLanes; ++i)
      for (int64_t c = 0; c < width; ++c)
        wide[i * width + c] = static_cast<float>(keys[seen[std::min(k + i, last)] * width + c]);
    each([&](int64_t i) { return wide.data() + i * width; });
  }
}

// What one worker needs for one row and one head of keys.
struct Scratch {
  std::vector<int64_t> seen;
  std::vector<float> scores;
  std::vector<float> totals;
  std::vector<float> wide;  // a block of keys
};

// One row, one head of keys: queries [group, width] (scaled) to out [group, value width].
template <typename T>
void attend(const float* queries, int64_t group, const Cache<T>& keys, const Cache<T>& values,
            int64_t head, const Row& row, float softcap, int64_t window, Scratch& scratch,
            T* out) {
  seen_tokens(row, window, scratch.seen);
  const int64_t count = scratch.seen.size();
  const int64_t stride = (count / kLanes + 1) * kLanes;
  scratch.scores.resize(group * stride);
  scratch.totals.resize(group);
  float* scores = scratch.scores.data();
  float* totals = scratch.totals.data();
  const T* key = keys.head(row.slot, head);
  scratch.wide.resize(kLanes * keys.width);
  score(queries, group, key, keys.width, scratch.seen, scores, stride, scratch.wide);
  for (int64_t g = 0; g < group; ++g) totals[g] = soften(scores + g * stride, count, softcap);
  const T* value = values.head(row.slot, head);
  const int64_t width = values.width;
  int64_t g = 0;
  for (; g + 3 <= group; g += 3)
    mix<3>(value, width, scratch.seen, scores + g * stride, stride, totals + g, out + g * width);
  for (; g < group; ++g)
    mix<1>(value, width, scratch.seen, scores + g * stride, stride, totals + g, out + g * width);
}

}  // namespace outrider
