// The highest of many numbers, and what a softmax of all gives each of them.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes.h"

namespace outrider {

// The `count` highest keys of a row so far, in falling order; of equals those that came first.
struct Leading {
  float* values;
  int64_t* columns;
  int64_t count;
  int64_t found = 0;

  // What a key must exceed to be among them.
  float least() const {
    return found < count ? -std::numeric_limits<float>::infinity() : values[count - 1];
  }
  void add(float key, int64_t column) {
    int64_t place = found < count ? found++ : count - 1;
    for (; place > 0 && values[place - 1] < key; --place) {
      values[place] = values[place - 1];
      columns[place] = columns[place - 1];
    }
    values[place] = key;
    columns[place] = column;
  }
};

// Find the `count` highest keys of a row, and their chances. A key of -inf is none of them: what is
// left of `values` is -inf. A row in which there is no number begins with that.
inline void find_leading(const float* keys, int64_t width, int64_t count, float* values,
                         int64_t* columns, float* chances) {
  std::fill_n(values, count, -std::numeric_limits<float>::infinity());
  std::fill_n(columns, count, 0);
  std::fill_n(chances, count, 0.0f);
  Leading leading{values, columns, count};
  const auto look = [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k)
      if (keys[k] > leading.least()) leading.add(keys[k], k);
  };
  constexpr int64_t kPart = 4 * kLanes;  // looked at more closely only if one exceeds the least
  int64_t k = 0;
  for (; k + kPart <= width; k += kPart) {
    const Lanes least = spread(leading.least());
    IntLanes any = {};
    // Also true for what is no number.
    for (int64_t i = 0; i < kPart; i += kLanes) any |= ~(load(keys + k + i) <= least);
    bool is_any = false;
    for (int i = 0; i < kLanes; ++i) is_any |= any[i] != 0;
    if (!is_any) continue;
    const auto* nothing = std::find_if(keys + k, keys + k + kPart, [](float x) { return x != x; });
    if (nothing != keys + k + kPart) {
      values[0] = *nothing;
      columns[0] = nothing - keys;
      return;
    }
    look(k, k + kPart);
  }
  for (int64_t rest = k; rest < width; ++rest)
    if (keys[rest] != keys[rest]) {
      values[0] = keys[rest];
      columns[0] = rest;
      return;
    }
  look(k, width);
  Lanes sums = {};
  for (k = 0; k + kLanes <= width; k += kLanes) sums += exp_of_negative(load(keys + k) - values[0]);
  float total = sums_of(sums, sums, sums, sums)[0];
  for (; k < width; ++k) total += std::exp(keys[k] - values[0]);
  for (int64_t i = 0; i < leading.found; ++i) chances[i] = std::exp(values[i] - values[0]) / total;
}

}  // namespace outrider
