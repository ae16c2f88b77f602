// Vectors of floats as wide as the processor's registers, and how numbers get into them.

#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace outrider {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float Lanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * 4)));
typedef float Four __attribute__((vector_size(16)));

inline Lanes load(const float* p) {
  Lanes lanes;
  std::memcpy(&lanes, p, sizeof(lanes));
  return lanes;
}

inline void store(float* p, Lanes lanes) { std::memcpy(p, &lanes, sizeof(lanes)); }

#if defined(__AVX512F__)
inline Lanes load(const c10::BFloat16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (Lanes)_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Lanes load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return (Lanes)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
#elif defined(__AVX2__)
inline Lanes load(const c10::BFloat16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return (Lanes)_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes load(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return (Lanes)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
inline IntLanes load_whole(const uint8_t* p) {
  return (IntLanes)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
#else
template <typename T>
inline Lanes load(const T* p) {
  Lanes lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(p[i]);
  return lanes;
}
inline IntLanes load_whole(const uint8_t* p) {
  IntLanes lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = p[i];
  return lanes;
}
#endif

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
// Twice as many narrow floats.
typedef __m512bh Pairs;

inline Pairs load_pairs(const c10::BFloat16* p) { return (Pairs)_mm512_loadu_si512(p); }
inline void store(c10::BFloat16* p, Pairs pairs) { _mm512_storeu_si512(p, (__m512i)pairs); }

// The sum of c and of neighbouring products: a0 * b0 + a1 * b1 in the first lane, and so on.
inline Lanes multiply_add(Pairs a, Pairs b, Lanes c) {
  return (Lanes)_mm512_dpbf16_ps((__m512)c, a, b);
}
#endif

// a * b + c, rounded once wherever the processor can. Left to the compiler, it would be rounded
// once in some copies of a loop and twice in others, and a row's bits would depend on the copy.
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

inline Lanes spread(float x) { return x - Lanes{}; }

inline Four folded(Lanes v) {
#if defined(__AVX512F__)
  const auto half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  const auto half = v;
#endif
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) +
         __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

// The sums over the lanes of four vectors; each is added up in the same order.
inline Four sums_of(Lanes first, Lanes second, Lanes third, Lanes fourth) {
  const Four a = folded(first), b = folded(second), c = folded(third), d = folded(fourth);
  const Four ab =
      __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd =
      __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// Vectors of pieces of `kPiece` lanes each: those of even (odd) place in a, then those in b.
template <int kPiece, int kOdd, int... kLane>
inline Lanes pieces(Lanes a, Lanes b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(
      a, b, (kLane / kPiece * 2 + kOdd) * kPiece + kLane % kPiece...);
}

// The sum over the lanes of each of `kLanes` vectors, side by side; each is added up in the same
// order. Halves of a vector are added up, then quarters, ...: what is left of two fits into one.
template <int kPiece = kLanes / 2>
inline Lanes sums_of_each(Lanes (&v)[2 * kPiece]) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  Lanes sums[kPiece];
#pragma GCC unroll 8
  for (int i = 0; i < kPiece; ++i)
    sums[i] = pieces<kPiece, 0>(v[2 * i], v[2 * i + 1], kAll) +
              pieces<kPiece, 1>(v[2 * i], v[2 * i + 1], kAll);
  if constexpr (kPiece == 1) return sums[0];
  else return sums_of_each<kPiece / 2>(sums);
}

// exp(x) for x <= 0, to about two units in the last place; 0 below -87.
inline Lanes exp_of_negative(Lanes x) {
  const IntLanes halvings = __builtin_convertvector(x * 1.44269504f - 0.5f, IntLanes);
  const Lanes whole = __builtin_convertvector(halvings, Lanes);
  const Lanes r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Lanes value = multiply_add(r, spread(1.9875691500e-4f), spread(1.3981999507e-3f));
  value = multiply_add(value, r, spread(8.3334519073e-3f));
  value = multiply_add(value, r, spread(4.1665795894e-2f));
  value = multiply_add(value, r, spread(1.6666665459e-1f));
  value = multiply_add(value, r, spread(5.0000001201e-1f));
  value = value * r * r + r + 1.0f;
  const Lanes scaled = value * reinterpret_cast<Lanes>((halvings + 127) << 23);
  return x < -87.0f ? Lanes{} : scaled;
}

}  // namespace outrider
