// Operators for the heads of drafters: what they give is a guess, and may be rounded freely.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "attention.h"
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

// RMS norms of tensors x[i] [R, width], each with its weight, side by side [R, n * width].
at::Tensor normed(at::TensorList x, at::TensorList weights, double epsilon) {
  TORCH_CHECK(!x.empty() && x.size() == weights.size(), "a weight for each tensor");
  const int64_t rows = x[0].size(0), width = x[0].size(1), count = x.size();
  at::Tensor y = at::empty({rows, count * width}, x[0].options());
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK(x[i].size(0) == rows && x[i].size(1) == width && weights[i].numel() == width,
                "tensors of one shape, and a weight for each of their columns");
    normalise(floats(x[i], "x"), rows, width, floats(weights[i], "weight"),
              static_cast<float>(epsilon), y.data_ptr<float>() + i * width, count * width);
  }
  return y;
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

// Attention of rows [R, queries | keys | values], turned by their positions; stores the rows first.
std::vector<float> attended(std::vector<float>& rows, int64_t width, const at::Tensor& cosine,
                            const at::Tensor& sine, const Stored& stored) {
  const int64_t size = stored.keys[0].width, shared = stored.keys[0].heads;
  const int64_t heads = width / size - 2 * shared, group = heads / shared;
  const int64_t count = stored.rows.size();
  const float* cosines = floats(cosine, "cosine");
  const float* sines = floats(sine, "sine");
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (int64_t r = 0; r < count; ++r) {
    const Row& row = stored.rows[r];
    float* query = rows.data() + r * width;
    float* key = query + heads * size;
    for (int64_t h = 0; h < heads + shared; ++h)
      turn(query + h * size, size, cosines + r * size, sines + r * size, h < heads ? scale : 1);
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

// A decoder layer of Llama's: attention over what `entering` [R, W] gives, on top of `residual`
// [R, H], then a gated feed-forward block. `layers` are weight, scale and offset of four products:
// queries, keys and values; output; gate and up; down. cosine, sine [R, width]; keys and values of
// each request [heads, tokens, width]; places [R, 3] (request, place, prefix); branches [R, words].
at::Tensor draft_layer(const at::Tensor& entering, const at::Tensor& residual,
                       at::TensorList layers, const at::Tensor& norm, double epsilon,
                       const at::Tensor& cosine, const at::Tensor& sine, at::TensorList keys,
                       at::TensorList values, const at::Tensor& places,
                       const at::Tensor& branches) {
  TORCH_CHECK(layers.size() == 12, "four layers");
  const auto layer = [&](int i) {
    return layer_of(layers[3 * i], layers[3 * i + 1], layers[3 * i + 2]);
  };
  const PackedLayer in = layer(0), out = layer(1), wide = layer(2), narrow = layer(3);
  const int64_t rows = residual.size(0), width = residual.size(1);
  const Stored stored = stored_in(keys, values, places, branches);
  const int64_t size = stored.keys[0].width, others = 2 * stored.keys[0].heads * size;
  TORCH_CHECK(entering.size(0) == rows && places.size(0) == rows && branches.size(0) == rows &&
                  cosine.numel() == rows * size && sine.numel() == rows * size,
              "as many places, branches and angles as rows");
  TORCH_CHECK(in.columns > others && (in.columns - others) % (others / 2) == 0 &&
                  out.columns == width && narrow.columns == width && norm.numel() == width,
              "layers that fit each other");
  std::vector<float> heads(rows * in.columns);
  multiply_rows(floats(entering, "entering"), rows, entering.size(1), in, nullptr, heads.data());
  const std::vector<float> mixed = attended(heads, in.columns, cosine, sine, stored);
  std::vector<float> hidden(rows * width), rested(rows * width);
  multiply_rows(mixed.data(), rows, in.columns - others, out, floats(residual, "residual"),
                hidden.data());
  normalise(hidden.data(), rows, width, floats(norm, "norm"), static_cast<float>(epsilon),
            rested.data(), width);
  std::vector<float> both(rows * wide.columns), fed(rows * wide.columns / 2);
  multiply_rows(rested.data(), rows, width, wide, nullptr, both.data());
  gated(both.data(), rows, wide.columns / 2, fed.data());
  at::Tensor y = at::empty_like(residual);
  multiply_rows(fed.data(), rows, wide.columns / 2, narrow, hidden.data(), y.data_ptr<float>());
  return y;
}

}  // namespace
}  // namespace outrider

TORCH_LIBRARY_FRAGMENT(outrider, m) {
  m.def("whole_linear(Tensor x, Tensor weight, Tensor scale, Tensor offset) -> Tensor");
  m.def("normed(Tensor[] x, Tensor[] weights, float epsilon) -> Tensor");
  m.def(
      "draft_layer(Tensor entering, Tensor residual, Tensor[] layers, Tensor norm, float epsilon, "
      "Tensor cosine, Tensor sine, Tensor(a!)[] keys, Tensor(b!)[] values, Tensor places, "
      "Tensor branches) -> Tensor");
}

TORCH_LIBRARY_IMPL(outrider, CPU, m) {
  m.impl("whole_linear", &outrider::whole_linear);
  m.impl("normed", &outrider::normed);
  m.impl("draft_layer", &outrider::draft_layer);
}
