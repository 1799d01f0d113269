// Products of a strip by AMX: 16 x 32 by 32 x 16 bfloat16 in one instruction.
#pragma once

#include "strips.h"

#if defined(__AMX_BF16__)

constexpr int kTileWords = 256;

// A thread's tiles, all eight of full size, given back at the end: others have shapes of their own.
struct TilesInUse {
    struct Shapes {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    TilesInUse() {
        static const Shapes shapes;
        _tile_loadconfig(&shapes);
    }
    ~TilesInUse() { _tile_release(); }
};

// The compiler doesn't know that loading a tile reads memory: what is to be read must have been written by here.
static inline void finish_stores() { asm volatile("" ::: "memory"); }

struct ByTiles {
    static constexpr int kKeyMultiple = 32;

    // Keys as they lie, [64][key columns], zeros beyond the last key and the last element.
    static inline void pack_keys(
        const Bf16* const* keys, int count, int key_size, int key_columns, uint32_t* packed) {
        Bf16* to = reinterpret_cast<Bf16*>(packed);
        for (int key = 0; key < kKeys; key++, to += key_columns) {
            const int size = key < count ? key_size : 0;
            if (size) std::memcpy(to, keys[key], size * sizeof(Bf16));
            if (size < key_columns) std::memset(to + size, 0, (key_columns - size) * sizeof(Bf16));
        }
    }

    // Values by columns: tiles of 16 columns x 32 keys, for each 16 columns those of all halves.
    static inline const uint32_t* pack_values(const uint32_t* pairs, int value_columns, uint32_t* packed) {
        uint32_t* to = packed;
        for (int column = 0; column < value_columns; column += 16)
            for (int half = 0; half < kKeys / kHalf; half++, to += kTileWords) {
                __m512i tile[16];
                for (int i = 0; i < 16; i++)
                    tile[i] = _mm512_loadu_si512(pairs + (half * 16 + i) * value_columns + column);
                transpose_16x16(tile);
                for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + i * 16, tile[i]);
            }
        return packed;
    }

    static inline void multiply_keys(
        const uint32_t* packed_keys, int key_columns, const uint32_t* queries, int halves, float* scores) {
        finish_stores();
        const Bf16* keys = reinterpret_cast<const Bf16*>(packed_keys);
        const int bytes = key_columns * int(sizeof(Bf16));
        for (; halves; halves--, keys += kHalf * key_columns, scores += 2 * kTileWords) {
            _tile_zero(0);
            _tile_zero(1);
            for (int i = 0; i < key_columns; i += 32) {
                _tile_loadd(4, queries + i / 2 * kStrip, 64);
                _tile_loadd(5, keys + i, bytes);
                _tile_dpbf16ps(0, 5, 4);
                _tile_loadd(6, keys + 16 * key_columns + i, bytes);
                _tile_dpbf16ps(1, 6, 4);
            }
            _tile_stored(0, scores, 64);
            _tile_stored(1, scores + kTileWords, 64);
        }
    }

    static inline void multiply_values(
        const uint32_t* values, int value_columns, const uint32_t* weights, int halves, float* mixed) {
        finish_stores();
        _tile_loadd(4, weights, 64);
        if (halves > 1) _tile_loadd(5, weights + kTileWords, 64);
        for (int column = 0; column < value_columns; column += 16, values += 2 * kTileWords, mixed += kTileWords) {
            _tile_loadd(0, mixed, 64);
            _tile_loadd(6, values, 64);
            _tile_dpbf16ps(0, 6, 4);
            if (halves > 1) {
                _tile_loadd(7, values + kTileWords, 64);
                _tile_dpbf16ps(0, 7, 5);
            }
            _tile_stored(0, mixed, 64);
        }
    }
};

typedef ByTiles StripProducts;

#else

struct TilesInUse {
    TilesInUse() {}
};
#if defined(__AVX512BF16__)
typedef ByVectors StripProducts;
#endif

#endif
