// The sums of `short_rows.h` by a processor's matrix instructions, to the same bits.
//
// These multiply bytes: a whole number of sixteen bits is two of them, 256 * high + low.

#pragma once

#include "short_rows.h"

#if defined(__AMX_INT8__) && defined(__AVX512BW__) && defined(__linux__)
#define OUTRIDER_HAS_TILES 1

#include <sys/syscall.h>
#include <unistd.h>

namespace outrider {

constexpr int64_t kTileDepth = 64;  // neighbours in depth that one instruction multiplies
constexpr int kTileRows = 8;        // rows it multiplies, of two bytes each
constexpr int kTileWide = 4;        // blocks of columns that are multiplied side by side
constexpr int64_t kFewRows = 3;     // which vectors multiply as fast
constexpr int64_t kTileAhead = 1024;  // bytes that are fetched ahead, as near as can be

// Whether the system lets this process use the matrix registers.
inline bool has_tiles() {
  constexpr int kAskPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  static const bool is_granted = syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
  return is_granted;
}

// Up to `kTileRows` rows as the matrix registers take them: [depth / 64, rows, low | high, 64].
class RowTiles {
 public:
  RowTiles(const ShortRows& x, int64_t first, int64_t last);
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  const int8_t* at(int64_t chunk) const {
    return bytes_.data() + chunk * kTileRows * 2 * kTileDepth;
  }

 private:
  int64_t first_, count_;
  std::vector<int8_t> bytes_;
};

inline RowTiles::RowTiles(const ShortRows& x, int64_t first, int64_t last)
    : first_(first), count_(last - first), bytes_(2 * kTileRows * x.stride) {
  // Puts every four bytes, which are in the order of pairs, into that of the weights.
  const __m256i order = _mm256_set_epi8(15, 13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0, 15,
                                        13, 14, 12, 11, 9, 10, 8, 7, 5, 6, 4, 3, 1, 2, 0);
  const auto put = [&](__m512i bytes, int8_t* to) {
    const __m256i narrow = _mm512_cvtepi16_epi8(bytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(narrow, order));
  };
  for (int64_t m = 0; m < count_; ++m)
    for (int64_t k = 0; k < x.stride; k += 32) {
      const __m512i whole = _mm512_loadu_si512(x.row(first + m) + k);
      const __m512i low = _mm512_srai_epi16(_mm512_slli_epi16(whole, 8), 8);
      const int64_t line = (k / kTileDepth * kTileRows + m) * 2;
      int8_t* to = bytes_.data() + line * kTileDepth + k % kTileDepth;
      put(low, to);
      put(_mm512_srai_epi16(_mm512_sub_epi16(whole, low), 8), to + kTileDepth);
    }
}

// Makes all matrix registers as large as they can be, until it ends.
class TileRegisters {
 public:
  TileRegisters() {
    struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // a row
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    _tile_loadconfig(&shapes);
  }
  ~TileRegisters() { _tile_release(); }
};

// Add the products of a chunk of depth, of rows in register 4, to those of one block of columns.
template <int G>
inline void add_tile(const uint8_t* w) {
  // The numbers of registers are part of the instructions.
  if constexpr (G == 0) {
    _tile_loadd(5, w, kStep);
    _tile_dpbsud(0, 4, 5);
  } else if constexpr (G == 1) {
    _tile_loadd(6, w, kStep);
    _tile_dpbsud(1, 4, 6);
  } else if constexpr (G == 2) {
    _tile_loadd(7, w, kStep);
    _tile_dpbsud(2, 4, 7);
  } else {
    _tile_loadd(5, w, kStep);
    _tile_dpbsud(3, 4, 5);
  }
}

// y [M of the rows, `kTileWide` blocks of columns from b on].
template <int M>
inline void multiply_tiles(const ShortRows& x, const RowTiles& tiles, const PackedLayer& layer,
                           int64_t b, float* y) {
  alignas(64) Sums parts[kTileWide][2 * kTileRows];
  Columns totals[M][kTileWide] = {};
  const int64_t chunks = x.stride / kTileDepth, block = layer.steps * kStep;
  constexpr int64_t kChunks = kGroup / kTileDepth, kChunk = kTileDepth * kColumns;  // bytes
  const uint8_t* w = layer.block(b);
  for (int64_t group = 0, chunk = 0; group < x.groups; ++group) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (const int64_t last = std::min(chunk + kChunks, chunks); chunk < last; ++chunk) {
      _tile_loadd(4, tiles.at(chunk), kTileDepth);
      for (int g = 0; tiles.first() == 0 && g < kTileWide; ++g)
        for (int64_t line = 0; line < kChunk; line += kStep)
          __builtin_prefetch(w + g * block + chunk * kChunk + line + kTileAhead, 0, 3);
      add_tile<0>(w + chunk * kChunk);
      add_tile<1>(w + block + chunk * kChunk);
      add_tile<2>(w + 2 * block + chunk * kChunk);
      add_tile<3>(w + 3 * block + chunk * kChunk);
    }
    _tile_stored(0, parts[0], kStep);
    _tile_stored(1, parts[1], kStep);
    _tile_stored(2, parts[2], kStep);
    _tile_stored(3, parts[3], kStep);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int64_t place = (tiles.first() + m) * x.groups + group;
#pragma GCC unroll 4
      for (int g = 0; g < kTileWide; ++g) {
        const Sums sum = (parts[g][2 * m + 1] << 8) + parts[g][2 * m] + x.offsets[place];
        totals[m][g] += __builtin_convertvector(sum, Columns) * x.scales[place];
      }
    }
  }
  for (int m = 0; m < M; ++m)
    for (int g = 0; g < kTileWide; ++g)
      put_columns(layer, b + g, totals[m][g], y + (tiles.first() + m) * layer.columns);
}

template <int M = kTileRows>
inline void multiply_tiles_up_to(const ShortRows& x, const RowTiles& tiles,
                                 const PackedLayer& layer, int64_t b, float* y) {
  if (tiles.count() == M) multiply_tiles<M>(x, tiles, layer, b, y);
  else if constexpr (M > 1) multiply_tiles_up_to<M - 1>(x, tiles, layer, b, y);
}

// Whether tiles multiply these rows at all, and faster: a chunk of weights must end with a column.
inline bool suits_tiles(const ShortRows& x) {
  return x.count > kFewRows && x.stride % kTileDepth == 0 && has_tiles();
}

inline void multiply_short_by_tiles(const ShortRows& x,
                                    const std::vector<PackedProduct>& products) {
  const int64_t parts = (x.count + kTileRows - 1) / kTileRows;
  std::vector<RowTiles> tiles;
  for (int64_t part = 0; part < parts; ++part)
    tiles.emplace_back(x, x.count * part / parts, x.count * (part + 1) / parts);
#pragma omp parallel
  {
    const TileRegisters registers;
    each_block(products, kTileWide, [&](const PackedProduct& product, int64_t b) {
      if (b + kTileWide > product.layer.blocks())
        for (; b < product.layer.blocks(); b += kWide) multiply_short(x, product, b);
      else
        for (const RowTiles& some : tiles)
          multiply_tiles_up_to(x, some, product.layer, b, product.y);
    });
  }
}

}  // namespace outrider

#endif

namespace outrider {

// All products of the rows, by whatever does it fastest.
inline void multiply_short(const ShortRows& x, const std::vector<PackedProduct>& products) {
#if defined(OUTRIDER_HAS_TILES)
  if (suits_tiles(x)) return multiply_short_by_tiles(x, products);
#endif
  multiply_short_by_vectors(x, products);
}

}  // namespace outrider
