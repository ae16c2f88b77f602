// Operators for the heads of drafters: what they give is a guess, and may be rounded freely.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "attention.h"
#include "leading.h"
#include "whole.h"

namespace outrider {
namespace {

const float* floats(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), name,
              " is contiguous, in float32");
  return tensor.const_data_ptr<float>();
}

PackedLayer layer_of(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& offset) {
  TORCH_CHECK(weight.scalar_type() == at::kByte && weight.dim() == 4 && weight.is_contiguous() &&
                  weight.size(2) == kColumns && weight.size(3) == kTogether,
              "weights are stored in blocks of 16 columns");
  const int64_t columns = scale.numel();
  TORCH_CHECK(offset.numel() == columns && weight.size(0) == (columns + kColumns - 1) / kColumns,
              "a scale and an offset for each column");
  return {weight.const_data_ptr<uint8_t>(), floats(scale, "scale"), floats(offset, "offset"),
          columns, weight.size(1)};
}

// The layer's outputs for rows x [rows, depth], on top of `onto`.
void multiply_rows(const float* x, int64_t rows, int64_t depth, const PackedLayer& layer,
                   const float* onto, float* y) {
  TORCH_CHECK(layer.steps == (depth + kTogether - 1) / kTogether, "a weight for each input, not ",
              depth, " for ", layer.steps * kTogether);
  multiply_whole(WholeRows(x, rows, depth), layer, onto, y);
}

at::Tensor whole_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale,
                        const at::Tensor& offset) {
  const PackedLayer layer = layer_of(weight, scale, offset);
  auto sizes = x.sizes().vec();
  const int64_t depth = sizes.back(), rows = depth ? x.numel() / depth : 0;
  sizes.back() = layer.columns;
  at::Tensor y = at::empty(sizes, x.options());
  multiply_rows(floats(x, "x"), rows, depth, layer, nullptr, y.data_ptr<float>());
  return y;
}

// Rows of unit mean square, times the weight.
void normalise(const float* x, int64_t rows, int64_t width, const float* weight, float epsilon,
               float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += y_stride) {
    Lanes squares = {};
    int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes)
      squares = multiply_add(load(x + k), load(x + k), squares);
    float total = 0;
    for (int i = 0; i < kLanes; ++i) total += squares[i];
    for (; k < width; ++k) total += x[k] * x[k];
    const float inverse = 1 / std::sqrt(total / width + epsilon);
    for (int64_t i = 0; i < width; ++i) y[i] = x[i] * inverse * weight[i];
  }
}

// RMS norms of tensors x[i] [R, width], each with its weight, side by side: y [R, n * width].
void normalise_all(at::TensorList x, at::TensorList weights, double epsilon, float* y) {
  TORCH_CHECK(!x.empty() && x.size() == weights.size(), "a weight for each tensor");
  const int64_t rows = x[0].size(0), width = x[0].size(1), count = x.size();
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK(x[i].size(0) == rows && x[i].size(1) == width && weights[i].numel() == width,
                "tensors of one shape, and a weight for each of their columns");
    normalise(floats(x[i], "x"), rows, width, floats(weights[i], "weight"),
              static_cast<float>(epsilon), y + i * width, count * width);
  }
}

at::Tensor normed(at::TensorList x, at::TensorList weights, double epsilon) {
  TORCH_CHECK(!x.empty(), "no tensors");
  const int64_t count = x.size();
  at::Tensor y = at::empty({x[0].size(0), count * x[0].size(1)}, x[0].options());
  normalise_all(x, weights, epsilon, y.data_ptr<float>());
  return y;
}

// Of rows of keys [R, D] the `count` highest each, in falling order, the columns they are in, and
// what a softmax of the row gives them, all [R, count].
std::tuple<at::Tensor, at::Tensor, at::Tensor> leading(const at::Tensor& keys, int64_t count) {
  const int64_t rows = keys.size(0), width = keys.size(1);
  const float* from = floats(keys, "keys");
  at::Tensor values = at::empty({rows, count}, keys.options());
  at::Tensor columns = at::empty({rows, count}, keys.options().dtype(at::kLong));
  at::Tensor chances = at::empty_like(values);
  float *value = values.data_ptr<float>(), *chance = chances.data_ptr<float>();
  int64_t* column = columns.data_ptr<int64_t>();
#pragma omp parallel for schedule(static) if (rows > 1)
  for (int64_t r = 0; r < rows; ++r)
    find_leading(from + r * width, width, count, value + r * count, column + r * count,
                 chance + r * count);
  return {values, columns, chances};
}

// Turn a head's first half and second half against each other, by a row's position.
void turn(float* head, int64_t width, const float* cosine, const float* sine, float scale) {
  const int64_t half = width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float first = head[i], second = head[half + i];
    head[i] = (first * cosine[i] - second * sine[i]) * scale;
    head[half + i] = (second * cosine[half + i] + first * sine[half + i]) * scale;
  }
}

// silu(gate) * up, of rows [rows, 2 * width] that hold both.
void gated(const float* both, int64_t rows, int64_t width, float* y) {
  for (int64_t r = 0; r < rows; ++r, both += 2 * width, y += width) {
    int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) {
      const Lanes gate = load(both + k);
      const Lanes small = exp_of_negative(gate < 0.0f ? gate : -gate);
      const Lanes share = (gate < 0.0f ? small : Lanes{} + 1.0f) / (small + 1.0f);
      store(y + k, gate * share * load(both + width + k));
    }
    for (; k < width; ++k) y[k] = both[k] / (1 + std::exp(-both[k])) * both[width + k];
  }
}

// The caches of a layer, one a request, and where the rows of a pass stand in them.
struct Stored {
  std::vector<Cache<float>> keys, values;
  std::vector<Row> rows;  // `slot` is the request
};

Stored stored_in(at::TensorList keys, at::TensorList values, const at::Tensor& places,
                 const at::Tensor& branches) {
  Stored stored;
  TORCH_CHECK(!keys.empty() && keys.size() == values.size(), "keys and values for each request");
  for (size_t i = 0; i < keys.size(); ++i) {
    TORCH_CHECK(keys[i].sizes() == values[i].sizes() && keys[i].size(0) == keys[0].size(0) &&
                    keys[i].size(2) == keys[0].size(2),
                "caches of one shape");
    const auto cache = [](const at::Tensor& of) -> Cache<float> {
      return {const_cast<float*>(floats(of, "a cache")), of.size(0), of.size(1), of.size(2)};
    };
    stored.keys.push_back(cache(keys[i]));
    stored.values.push_back(cache(values[i]));
  }
  const auto place = places.accessor<int64_t, 2>();
  const auto* branch = reinterpret_cast<const uint64_t*>(branches.const_data_ptr<int64_t>());
  const int64_t words = branches.size(1), requests = keys.size();
  for (int64_t r = 0; r < places.size(0); ++r) {
    TORCH_CHECK(0 <= place[r][0] && place[r][0] < requests && 0 <= place[r][1] &&
                    place[r][1] < keys[place[r][0]].size(1) && place[r][2] <= place[r][1] + 1,
                "row ", r, " is stored outside its cache");
    stored.rows.push_back({place[r][0], place[r][1], place[r][2], branch + r * words, words});
  }
  return stored;
}

// How far rows are turned: the lines of tables [T, size] that theirs are in.
struct Turns {
  const float *cosines, *sines;
  std::vector<int64_t> lines;
};

Turns turns_of(const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& lines,
               int64_t rows, int64_t size) {
  const int64_t count = cosine.numel() / size;
  TORCH_CHECK(cosine.numel() == count * size && sine.numel() == cosine.numel() &&
                  lines.numel() == rows,
              "a cosine and a sine for each component, and a line for each row");
  const auto line = lines.accessor<int64_t, 1>();
  Turns turns{floats(cosine, "cosine"), floats(sine, "sine"), {}};
  for (int64_t r = 0; r < rows; ++r) {
    TORCH_CHECK(0 <= line[r] && line[r] < count, "row ", r, " is turned beyond the table");
    turns.lines.push_back(line[r] * size);
  }
  return turns;
}

// Attention of rows [R, queries | keys | values], turned by their positions; stores the rows first.
std::vector<float> attended(std::vector<float>& rows, int64_t width, const Turns& turns,
                            const Stored& stored) {
  const int64_t size = stored.keys[0].width, shared = stored.keys[0].heads;
  const int64_t heads = width / size - 2 * shared, group = heads / shared;
  const int64_t count = stored.rows.size();
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (int64_t r = 0; r < count; ++r) {
    const Row& row = stored.rows[r];
    float* query = rows.data() + r * width;
    float* key = query + heads * size;
    for (int64_t h = 0; h < heads + shared; ++h)
      turn(query + h * size, size, turns.cosines + turns.lines[r], turns.sines + turns.lines[r],
           h < heads ? scale : 1);
    const auto keep = [&](const float* from, const Cache<float>& cache) {
      for (int64_t h = 0; h < shared; ++h)
        std::copy_n(from + h * size, size, cache.head(0, h) + row.place * size);
    };
    keep(key, stored.keys[row.slot]);
    keep(key + shared * size, stored.values[row.slot]);
  }
  std::vector<float> mixed(count * heads * size);
#pragma omp parallel
  {
    Scratch scratch;
#pragma omp for schedule(static)
    for (int64_t task = 0; task < count * shared; ++task) {
      const int64_t r = task / shared, h = task % shared, slot = stored.rows[r].slot;
      Row row = stored.rows[r];
      row.slot = 0;
      attend<float>(rows.data() + r * width + h * group * size, group, stored.keys[slot],
                    stored.values[slot], h, row, 0, 0, scratch,
                    mixed.data() + (r * heads + h * group) * size);
    }
  }
  return mixed;
}

// What enters the attention of a layer, and what goes past it: rows x[i] [R, W], normed with a
// weight each and side by side, or one as it is; and the last of them, normed if it `is_normed`.
struct Entering {
  Entering(at::TensorList x, at::TensorList norms, double epsilon, bool is_normed);
  const float* past() const { return residual.empty() ? last : residual.data(); }

  int64_t rows, width, depth;  // of what goes past, and of what enters
  const float* last;
  std::vector<float> values, residual;
};

Entering::Entering(at::TensorList x, at::TensorList norms, double epsilon, bool is_normed)
    : rows(x.back().size(0)), width(x.back().size(1)), depth(x.size() * width),
      last(floats(x.back(), "x")), values(rows * depth) {
  TORCH_CHECK(!norms.empty() || (x.size() == 1 && !is_normed), "norms for several tensors");
  if (norms.empty()) std::copy_n(last, rows * width, values.begin());
  else normalise_all(x, norms, epsilon, values.data());
  for (int64_t r = 0; is_normed && r < rows; ++r)
    residual.insert(residual.end(), values.begin() + (r + 1) * depth - width,
                    values.begin() + (r + 1) * depth);
}

// A decoder layer of Llama's: attention over what `entering` gives, on top of what goes past it,
// then a gated feed-forward block. `layers` are weight, scale and offset of four products: queries,
// keys and values; output; gate and up; down. cosine, sine [T, size], of which `lines` [R] are the
// rows'; keys and values of each request [heads, tokens, size]; places [R, 3] (request, place,
// prefix); branches [R, words].
at::Tensor draft_layer(at::TensorList x, at::TensorList norms, bool is_normed,
                       at::TensorList layers, const at::Tensor& norm, double epsilon,
                       const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& lines,
                       at::TensorList keys, at::TensorList values, const at::Tensor& places,
                       const at::Tensor& branches) {
  TORCH_CHECK(layers.size() == 12 && !x.empty(), "four layers, and rows");
  const auto layer = [&](int i) {
    return layer_of(layers[3 * i], layers[3 * i + 1], layers[3 * i + 2]);
  };
  const PackedLayer in = layer(0), out = layer(1), wide = layer(2), narrow = layer(3);
  const Entering entering(x, norms, epsilon, is_normed);
  const int64_t rows = entering.rows, width = entering.width;
  const Stored stored = stored_in(keys, values, places, branches);
  const int64_t size = stored.keys[0].width, others = 2 * stored.keys[0].heads * size;
  TORCH_CHECK(places.size(0) == rows && branches.size(0) == rows,
              "as many places and branches as rows");
  TORCH_CHECK(in.columns > others && (in.columns - others) % (others / 2) == 0 &&
                  out.columns == width && narrow.columns == width && norm.numel() == width,
              "layers that fit each other");
  const Turns turns = turns_of(cosine, sine, lines, rows, size);
  std::vector<float> heads(rows * in.columns);
  multiply_rows(entering.values.data(), rows, entering.depth, in, nullptr, heads.data());
  const std::vector<float> mixed = attended(heads, in.columns, turns, stored);
  std::vector<float> hidden(rows * width), rested(rows * width);
  multiply_rows(mixed.data(), rows, in.columns - others, out, entering.past(), hidden.data());
  normalise(hidden.data(), rows, width, floats(norm, "norm"), static_cast<float>(epsilon),
            rested.data(), width);
  std::vector<float> both(rows * wide.columns), fed(rows * wide.columns / 2);
  multiply_rows(rested.data(), rows, width, wide, nullptr, both.data());
  gated(both.data(), rows, wide.columns / 2, fed.data());
  at::Tensor y = at::empty_like(x.back());
  multiply_rows(fed.data(), rows, wide.columns / 2, narrow, hidden.data(), y.data_ptr<float>());
  return y;
}

}  // namespace
}  // namespace outrider

TORCH_LIBRARY_FRAGMENT(outrider, m) {
  m.def("whole_linear(Tensor x, Tensor weight, Tensor scale, Tensor offset) -> Tensor");
  m.def("leading(Tensor keys, int count) -> (Tensor, Tensor, Tensor)");
  m.def("normed(Tensor[] x, Tensor[] weights, float epsilon) -> Tensor");
  m.def(
      "draft_layer(Tensor[] x, Tensor[] norms, bool is_normed, Tensor[] layers, Tensor norm, "
      "float epsilon, Tensor cosine, Tensor sine, Tensor lines, Tensor(a!)[] keys, "
      "Tensor(b!)[] values, Tensor places, Tensor branches) -> Tensor");
}

TORCH_LIBRARY_IMPL(outrider, CPU, m) {
  m.impl("whole_linear", &outrider::whole_linear);
  m.impl("leading", &outrider::leading);
  m.impl("normed", &outrider::normed);
  m.impl("draft_layer", &outrider::draft_layer);
}
