// The operators a compiled pass is made of, as torch sees them.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include "attention.h"
#include "blocks.h"
#include "product.h"
#include "short_tiles.h"

namespace outrider {
namespace {

// From here on a product is limited by arithmetic, which the library does better.
constexpr int64_t kManyRows = 64;
constexpr int64_t kRowsInCache = 64;  // of inputs and outputs, beside a part of the weights

// Call `use` with the type of weights that are stored as `type`: in blocks of a kind, if it has a
// name, or each by itself.
template <typename Use>
auto with_weights(at::ScalarType type, c10::string_view kind, Use use) {
  if (kind == "nibbles") return use.template operator()<Blocked<Nibbles>>();
  if (kind == "bytes") return use.template operator()<Blocked<Bytes>>();
  if (kind == "short_bytes") return use.template operator()<Blocked<ShortBytes>>();
  if (kind == "offset_bytes") return use.template operator()<Blocked<OffsetBytes>>();
  TORCH_CHECK(kind.empty(), "no blocks of kind ", kind);
  if (type == at::kBFloat16) return use.template operator()<Dense<c10::BFloat16>>();
  TORCH_CHECK(type == at::kFloat, "no product for weights of type ", type);
  return use.template operator()<Dense<float>>();
}

template <typename Weights>
Weights weights_in(const at::Tensor& stored) {
  using Stored = typename Weights::Stored;
  const int64_t bytes = stored.size(1) * stored.element_size();
  TORCH_CHECK(stored.is_contiguous() && bytes % sizeof(Stored) == 0, "a row of ", bytes,
              " bytes is not made of blocks of ", sizeof(Stored));
  return {static_cast<const Stored*>(stored.const_data_ptr()),
          bytes / static_cast<int64_t>(sizeof(Stored)) * Weights::kCount};
}

// The float32 weights [columns, depth] that blocks stand for.
at::Tensor expand(const at::Tensor& stored, c10::string_view kind) {
  return with_weights(stored.scalar_type(), kind, [&]<typename Weights>() {
    if constexpr (Weights::kCount == 1) return stored.to(at::kFloat);
    else {
      const Weights weights = weights_in<Weights>(stored);
      const int64_t columns = stored.size(0), depth = weights.depth;
      at::Tensor wide = at::empty({columns, depth}, stored.options().dtype(at::kFloat));
      float* to = wide.data_ptr<float>();
#pragma omp parallel for schedule(static)
      for (int64_t n = 0; n < columns; ++n) weights.widen(n, to + n * depth);
      return wide;
    }
  });
}

// x w^T by the library. For float32 that is oneDNN's product, where torch has it: it is twice as
// fast as the one torch would choose on processors that MKL knows little of.
at::Tensor library_product(const at::Tensor& x, const at::Tensor& stored, c10::string_view kind) {
  const at::Tensor weight = kind.empty() ? stored.to(x.scalar_type()) : expand(stored, kind);
  static const auto product =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!product.has_value() || x.scalar_type() != at::kFloat) return at::linear(x, weight);
  const c10::List<std::optional<at::Scalar>> none;
  torch::jit::Stack stack{x, weight, c10::IValue(), "none", none, ""};
  product->callBoxed(stack);
  return stack.at(0).toTensor();
}

// A number for each of `columns` columns in float32, which `kept` keeps; null if there is none.
const float* numbers(at::TensorList given, size_t i, int64_t columns,
                     std::vector<at::Tensor>& kept) {
  if (given.empty()) return nullptr;
  TORCH_CHECK(given[i].numel() == columns, given[i].numel(), " numbers for ", columns, " columns");
  kept.push_back(given[i].to(at::kFloat).contiguous());
  return kept.back().const_data_ptr<float>();
}

// Several layers of the same x, as `linears` has them, by the product in this folder.
template <typename Math, typename Weights>
std::vector<at::Tensor> few_rows(const at::Tensor& x, at::TensorList stored, at::TensorList scales,
                                 at::TensorList biases) {
  using Value = typename Math::Value;
  const at::Tensor from = x.to(c10::CppTypeToScalarType<Value>::value).contiguous();
  auto sizes = x.sizes().vec();
  std::vector<at::Tensor> kept, outputs;
  std::vector<Product<Weights>> products;
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t columns = stored[i].size(0);
    kept.push_back(stored[i].contiguous());
    const Weights weights = weights_in<Weights>(kept.back());
    TORCH_CHECK(x.size(-1) == weights.depth, "rows of ", x.size(-1), " for weights of ",
                weights.depth);
    sizes.back() = columns;
    outputs.push_back(at::empty(sizes, x.options().dtype(at::kFloat)));
    products.push_back({weights, outputs.back().data_ptr<float>(), columns,
                        numbers(scales, i, columns, kept), numbers(biases, i, columns, kept)});
  }
  multiply<Math>(from.const_data_ptr<Value>(), x.numel() / x.size(-1), products);
  for (at::Tensor& output : outputs) output = output.to(x.scalar_type());
  return outputs;
}

// The same by the library.
std::vector<at::Tensor> many_rows(const at::Tensor& x, at::TensorList stored,
                                  at::TensorList scales, at::TensorList biases,
                                  c10::string_view kind) {
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < stored.size(); ++i) {
    at::Tensor output = library_product(x, stored[i], kind);
    if (!scales.empty()) output = at::mul(output, scales[i]);
    if (!biases.empty()) output = at::add(output, biases[i]);
    outputs.push_back(output.to(x.scalar_type()));
  }
  return outputs;
}

// The same for packed weights, which have scales in any case.
std::vector<at::Tensor> packed_rows(const at::Tensor& x, at::TensorList stored,
                                    at::TensorList scales, at::TensorList biases) {
  const at::Tensor from = x.to(at::kFloat).contiguous();
  const int64_t depth = x.size(-1);
  auto sizes = x.sizes().vec();
  std::vector<at::Tensor> kept, outputs;
  std::vector<PackedProduct> products;
  for (size_t i = 0; i < stored.size(); ++i) {
    TORCH_CHECK(!scales.empty() && stored[i].is_contiguous() && stored[i].size(2) == kColumns &&
                    stored[i].size(3) == kTogether,
                "packed weights are blocks of 16 columns, with a scale each");
    TORCH_CHECK(stored[i].size(1) == (depth + kTogether - 1) / kTogether, "rows of ", depth,
                " for weights of ", stored[i].size(1) * kTogether);
    const int64_t columns = sizes.back() = scales[i].numel();
    TORCH_CHECK(stored[i].size(0) == (columns + kColumns - 1) / kColumns, columns,
                " scales for ", stored[i].size(0), " blocks of columns");
    outputs.push_back(at::empty(sizes, x.options().dtype(at::kFloat)));
    const PackedLayer layer{stored[i].const_data_ptr<uint8_t>(), numbers(scales, i, columns, kept),
                            numbers(biases, i, columns, kept), columns, stored[i].size(1)};
    products.push_back({layer, outputs.back().data_ptr<float>()});
  }
  const int64_t rows = depth ? x.numel() / depth : 0;
  for (int64_t first = 0; first < rows; first += kRowsInCache) {
    const int64_t some = std::min(kRowsInCache, rows - first);
    multiply_short(ShortRows(from.const_data_ptr<float>() + first * depth, some, depth), products);
    for (PackedProduct& product : products) product.y += some * product.layer.columns;
  }
  for (at::Tensor& output : outputs) output = output.to(x.scalar_type());
  return outputs;
}

// Several layers of the same x: times weights of one type and kind, then scales and offsets of each
// column, if there are any.
std::vector<at::Tensor> linears(const at::Tensor& x, at::TensorList weights, at::TensorList scales,
                                at::TensorList biases, c10::string_view kind) {
  if (weights[0].dim() == 4) return packed_rows(x, weights, scales, biases);
  if (x.numel() >= kManyRows * x.size(-1)) return many_rows(x, weights, scales, biases, kind);
  return with_weights(weights[0].scalar_type(), kind, [&]<typename Weights>() {
#if defined(OUTRIDER_HAS_PAIRS)
    constexpr bool kIsNarrow = !std::is_same_v<typename Weights::Stored, float>;
    if constexpr (Weights::kCount == 1 && kIsNarrow)
      if (x.scalar_type() == at::kBFloat16)
        return few_rows<Paired, Weights>(x, weights, scales, biases);
#endif
    return few_rows<Single, Weights>(x, weights, scales, biases);
  });
}

// The same with all lists in one, as a compiled pass cannot hand over empty ones: the weights, then
// scales and biases if there are any.
std::vector<at::Tensor> joined_linears(const at::Tensor& x, at::TensorList parts, bool is_scaled,
                                       bool is_biased, c10::string_view kind) {
  const size_t count = parts.size() / (1 + is_scaled + is_biased);
  const at::TensorList rest = parts.slice(count);
  return linears(x, parts.slice(0, count), rest.slice(0, is_scaled ? count : 0),
                 rest.slice(rest.size() - (is_biased ? count : 0)), kind);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& bias,
                  c10::string_view kind) {
  const auto list = [](const std::optional<at::Tensor>& one) {
    return one.has_value() ? at::TensorList(*one) : at::TensorList();
  };
  return linears(x, weight, list(scale), list(bias), kind)[0];
}

template <typename T>
void keep_rows(const at::Tensor& states, const Cache<T>& cache, const std::vector<Row>& rows) {
  const auto from = states.accessor<T, 4>();  // [1, heads, rows, width]
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t h = 0; h < cache.heads; ++h) {
      T* place = cache.head(rows[r].slot, h) + rows[r].place * cache.width;
      for (int64_t i = 0; i < cache.width; ++i) place[i] = from[0][h][r][i];
    }
}

template <typename T>
Cache<T> cache_of(const at::Tensor& stored) {
  TORCH_CHECK(stored.is_contiguous(), "a cache is contiguous");
  return {stored.data_ptr<T>(), stored.size(1), stored.size(2), stored.size(3)};
}

// Queries [1, heads, R, width], times the scale, as [R, heads, width].
template <typename T>
std::vector<float> scaled_queries(const at::Tensor& query, float scale) {
  const auto from = query.accessor<T, 4>();
  std::vector<float> queries(query.numel());
  float* to = queries.data();
  for (int64_t r = 0; r < query.size(2); ++r)
    for (int64_t h = 0; h < query.size(1); ++h) {
      const auto part = from[0][h][r];
      for (int64_t i = 0; i < query.size(3); ++i) *to++ = static_cast<float>(part[i]) * scale;
    }
  return queries;
}

template <typename T>
at::Tensor attention_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const at::Tensor& keys, const at::Tensor& values,
                        const std::vector<Row>& rows, float scale, float softcap, int64_t window) {
  const Cache<T> key_cache = cache_of<T>(keys), value_cache = cache_of<T>(values);
  keep_rows<T>(key, key_cache, rows);
  keep_rows<T>(value, value_cache, rows);
  const std::vector<float> queries = scaled_queries<T>(query, scale);
  const int64_t heads = query.size(1), group = heads / key_cache.heads, num_rows = rows.size();
  at::Tensor out = at::empty({1, num_rows, heads, value_cache.width}, query.options());
  T* to = out.data_ptr<T>();
  // Queries that share a head of keys read it once, which takes half the time or so, unless that
  // leaves workers idle for longer.
  const int64_t workers = at::get_num_threads(), shared = num_rows * key_cache.heads;
  const auto turns = [&](int64_t tasks) { return (tasks + workers - 1) / workers; };
  const bool is_split = 2 * turns(shared * group) < turns(shared) * group;
  const int64_t together = is_split ? 1 : group, tasks = num_rows * heads / together;
#pragma omp parallel
  {
    Scratch scratch;
#pragma omp for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t first = task * together, row = first / heads;  // of all queries
      attend<T>(queries.data() + first * key_cache.width, together, key_cache, value_cache,
                first % heads / group, rows[row], softcap, window, scratch,
                to + first * value_cache.width);
    }
  }
  return out;
}

// query, key, value [1, heads, R, width]; keys, values [slots, heads, tokens, width]; places [R, 3]
// int64 (slot, place, prefix); branches [R, words] int64. Stores the rows, then attends:
// returns [1, R, heads, width]. A softcap or window of 0 is none.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     at::Tensor keys, at::Tensor values, const at::Tensor& places,
                     const at::Tensor& branches, double scale, double softcap, int64_t window) {
  const auto place = places.accessor<int64_t, 2>();
  const auto* branch = reinterpret_cast<const uint64_t*>(branches.const_data_ptr<int64_t>());
  const int64_t words = branches.size(1);
  std::vector<Row> rows;
  for (int64_t r = 0; r < places.size(0); ++r) {
    TORCH_CHECK(0 <= place[r][0] && place[r][0] < keys.size(0) && 0 <= place[r][1] &&
                    place[r][1] < keys.size(2) && place[r][2] <= place[r][1] + 1,
                "row ", r, " is stored outside the cache");
    rows.push_back({place[r][0], place[r][1], place[r][2], branch + r * words, words});
  }
  switch (keys.scalar_type()) {
    case at::kFloat:
      return attention_of<float>(query, key, value, keys, values, rows, scale, softcap, window);
    case at::kBFloat16:
      return attention_of<c10::BFloat16>(query, key, value, keys, values, rows, scale, softcap,
                                         window);
    default: TORCH_CHECK(false, "no attention over a cache of type ", keys.scalar_type());
  }
}

}  // namespace
}  // namespace outrider

TORCH_LIBRARY_FRAGMENT(outrider, m) {
  m.def(
      "linear(Tensor x, Tensor weight, Tensor? scale, Tensor? bias, str kind='') -> Tensor");
  m.def(
      "linears(Tensor x, Tensor[] parts, bool is_scaled, bool is_biased, str kind='') "
      "-> Tensor[]");
  m.def("expand(Tensor blocks, str kind) -> Tensor");
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor(a!) keys, Tensor(b!) values, "
      "Tensor places, Tensor branches, float scale, float softcap, int window) -> Tensor");
}

TORCH_LIBRARY_IMPL(outrider, CPU, m) {
  m.impl("linear", &outrider::linear);
  m.impl("linears", &outrider::joined_linears);
  m.impl("expand", &outrider::expand);
  m.impl("attention", &outrider::attention);
}
