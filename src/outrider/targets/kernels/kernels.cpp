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
#include "product.h"

namespace outrider {
namespace {

// From here on a product is limited by arithmetic, which the library does better.
constexpr int64_t kManyRows = 64;

template <typename Math>
void multiply_into(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  const int64_t columns = weight.size(0), depth = weight.size(1), rows = x.numel() / depth;
  const auto* from = x.const_data_ptr<typename Math::Value>();
  float* to = y.data_ptr<float>();
  const auto with = [&](const auto* w) { multiply<Math>(from, w, to, rows, columns, depth); };
  switch (weight.scalar_type()) {
    case at::kBFloat16: with(weight.const_data_ptr<c10::BFloat16>()); break;
    case at::kChar: with(weight.const_data_ptr<int8_t>()); break;
    default:
      if constexpr (std::is_same_v<typename Math::Value, float>)
        with(weight.const_data_ptr<float>());
  }
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight) {
  const auto type = weight.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kChar,
              "no product for weights of type ", type);
  const at::Tensor w = weight.contiguous();
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  at::Tensor out = at::empty(sizes, x.options().dtype(at::kFloat));
#if defined(OUTRIDER_HAS_PAIRS)
  if (x.scalar_type() == at::kBFloat16 && type != at::kFloat) {
    multiply_into<Paired>(x.contiguous(), w, out);
    return out;
  }
#endif
  multiply_into<Single>(x.to(at::kFloat).contiguous(), w, out);
  return out;
}

// x w^T by the library. For float32 that is oneDNN's product, where torch has it: it is twice as
// fast as the one torch would choose on processors that MKL knows little of.
at::Tensor many_rows(const at::Tensor& x, const at::Tensor& weight) {
  static const auto product =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!product.has_value() || x.scalar_type() != at::kFloat) return at::linear(x, weight);
  const c10::List<std::optional<at::Scalar>> none;
  torch::jit::Stack stack{x, weight, c10::IValue(), "none", none, ""};
  product->callBoxed(stack);
  return stack.at(0).toTensor();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& bias) {
  at::Tensor y;
  if (x.numel() < kManyRows * weight.size(1)) {
    y = few_rows(x, weight);
  } else {
    y = many_rows(x, weight.to(x.scalar_type()));
  }
  if (scale.has_value()) y = at::mul(y, *scale);
  if (bias.has_value()) y = at::add(y, *bias);
  return y.to(x.scalar_type());
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
  // Queries that share a head of keys read it once, unless that leaves workers idle.
  const bool is_split = num_rows * key_cache.heads < 4 * at::get_num_threads();
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
  m.def("linear(Tensor x, Tensor weight, Tensor? scale, Tensor? bias) -> Tensor");
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor(a!) keys, Tensor(b!) values, "
      "Tensor places, Tensor branches, float scale, float softcap, int window) -> Tensor");
}

TORCH_LIBRARY_IMPL(outrider, CPU, m) {
  m.impl("linear", &outrider::linear);
  m.impl("attention", &outrider::attention);
}
