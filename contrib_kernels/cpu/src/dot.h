// Small matrix products in registers, with operands packed into 32-bit words.
//
// A word is one step of a dot product: a float, or two bfloat16 that one instruction multiplies and
// adds. The left operand is row by row, [rows][steps]; the right one step by step, [steps][columns],
// so that a vector holds a step of neighbouring columns and no sum across lanes is ever needed.
#pragma once

#include "simd.h"

struct FloatDot {
    static constexpr int kPerWord = 1;
    static inline Floats add(Floats sum, uint32_t left, Words right) {
        float value;
        std::memcpy(&value, &left, 4);
        return sum + splat(value) * (Floats)right;
    }
};

#if defined(__AVX512BF16__)
struct Bf16Dot {
    typedef Floats Sum;
    static constexpr int kPerWord = 2;
    static inline Floats add(Floats sum, uint32_t left, Words right) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(int(left)), (__m512bh)right);
    }
};
typedef Bf16Dot DotOfBf16;
#else
typedef FloatDot DotOfBf16;  // no such instruction: packing widens to floats
#endif

// `sizes` elements as words, zeros beyond the last.
template <class Dot, class Element>
static inline void pack_row(const Element* row, int size, uint32_t* words) {
    if (Dot::kPerWord == int(sizeof(uint32_t) / sizeof(Element))) {
        if (size % Dot::kPerWord) words[size / Dot::kPerWord] = 0;
        std::memcpy(words, row, size * sizeof(Element));
    } else {
        for (int i = 0; i < size; i += kLanes)
            store_some(reinterpret_cast<float*>(words) + i, load_some(row + i, size - i), size - i);
    }
}

#if defined(__AVX512F__)
static inline void transpose_16x16(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
static inline void transpose_8x8(__m256 r[8]) {
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}
#endif

// Rows become columns: words[step * columns + row]; `columns` is a multiple of 16, absent rows are zeros.
template <class Dot, class Element>
static inline void pack_transposed(const Element* const* rows, int num_rows, int size, int columns, uint32_t* words) {
#if defined(__AVX512F__)
    if (Dot::kPerWord == int(sizeof(uint32_t) / sizeof(Element)) && size % Dot::kPerWord == 0) {
        const int steps = size / Dot::kPerWord;
        for (int first = 0; first < columns; first += 16) {
            for (int step = 0; step < steps; step += 16) {
                const int count = steps - step < 16 ? steps - step : 16;
                const __mmask16 mask = __mmask16((1u << count) - 1);
                __m512i tile[16];
                for (int i = 0; i < 16; i++)
                    tile[i] = first + i < num_rows
                                  ? _mm512_maskz_loadu_epi32(
                                        mask, reinterpret_cast<const uint32_t*>(rows[first + i]) + step)
                                  : _mm512_setzero_si512();
                transpose_16x16(tile);
                for (int i = 0; i < count; i++) _mm512_storeu_si512(words + (step + i) * columns + first, tile[i]);
            }
        }
        return;
    }
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
    if (sizeof(Element) == sizeof(float) && size % 8 == 0) {
        for (int first = 0; first < columns; first += 8) {
            for (int step = 0; step < size; step += 8) {
                __m256 tile[8];
                for (int i = 0; i < 8; i++)
                    tile[i] = first + i < num_rows
                                  ? _mm256_loadu_ps(reinterpret_cast<const float*>(rows[first + i]) + step)
                                  : _mm256_setzero_ps();
                transpose_8x8(tile);
                for (int i = 0; i < 8; i++)
                    _mm256_storeu_ps(reinterpret_cast<float*>(words + (step + i) * columns + first), tile[i]);
            }
        }
        return;
    }
#endif
    const int steps = (size + Dot::kPerWord - 1) / Dot::kPerWord;
    uint32_t row_words[1024];
    for (int row = 0; row < columns; row++) {
        if (row < num_rows) pack_row<Dot>(rows[row], size, row_words);
        for (int step = 0; step < steps; step++) words[step * columns + row] = row < num_rows ? row_words[step] : 0;
    }
}

#if defined(__AVX512BF16__)
// Two rows of 16-bit elements, a multiple of 32, element by element; no second row is zeros.
static inline void interleave(const uint16_t* low, const uint16_t* high, int size, uint32_t* words) {
    alignas(64) static const uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = _mm512_load_si512(kFirst), second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int i = 0; i < size; i += 32) {
        const __m512i a = _mm512_loadu_si512(low + i);
        const __m512i b = high ? _mm512_loadu_si512(high + i) : _mm512_setzero_si512();
        _mm512_storeu_si512(words + i, _mm512_permutex2var_epi16(a, first, b));
        _mm512_storeu_si512(words + i + 16, _mm512_permutex2var_epi16(a, second, b));
    }
}
#endif

// Rows stay rows, as many as make a word side by side: words[row / per word * columns + column].
template <class Dot, class Element>
static inline void pack_rows(const Element* const* rows, int num_rows, int size, int columns, uint32_t* words) {
    for (int row = 0; row < num_rows; row += Dot::kPerWord, words += columns) {
#if defined(__AVX512BF16__)
        if (Dot::kPerWord == 2 && size % 32 == 0) {
            interleave(
                reinterpret_cast<const uint16_t*>(rows[row]),
                row + 1 < num_rows ? reinterpret_cast<const uint16_t*>(rows[row + 1]) : nullptr, size, words);
            continue;
        }
#endif
        for (int i = 0; i < columns; i += kLanes) {
            const int count = size - i;
            if (Dot::kPerWord == 1) {
                store(reinterpret_cast<float*>(words) + i, load_some(rows[row] + i, count));
                continue;
            }
            const Floats low = load_some(rows[row] + i, count);
            const Floats high = row + 1 < num_rows ? load_some(rows[row + 1] + i, count) : splat(0.0f);
            store_words(words + i, ((Words)low >> 16) | ((Words)high & 0xffff0000u));
        }
    }
}

template <class Dot, int kRows, int kVectors, bool kAdd>
static inline void product_tile(
    const uint32_t* left, int left_stride, const uint32_t* right, int right_stride, int steps, float* out,
    int out_stride) {
    Floats sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++)
            sums[r][v] = kAdd ? load(out + r * out_stride + v * kLanes) : splat(0.0f);
    for (int step = 0; step < steps; step++) {
        Words columns[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) columns[v] = load_words(right + step * right_stride + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++)
                sums[r][v] = Dot::add(sums[r][v], left[r * left_stride + step], columns[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) store(out + r * out_stride + v * kLanes, sums[r][v]);
}

constexpr int kTileRows = 6;
constexpr int kTileVectors = kLanes == 16 ? 4 : 2;

template <class Dot, int kVectors, bool kAdd>
static inline void product_rows(
    int rows, const uint32_t* left, int left_stride, const uint32_t* right, int right_stride, int steps, float* out,
    int out_stride) {
    int row = 0;
    for (; row + kTileRows <= rows; row += kTileRows)
        product_tile<Dot, kTileRows, kVectors, kAdd>(
            left + row * left_stride, left_stride, right, right_stride, steps, out + row * out_stride, out_stride);
    const uint32_t* rest = left + row * left_stride;
    float* rest_out = out + row * out_stride;
    switch (rows - row) {
#define REST(n)                                                                                                      \
    case n:                                                                                                          \
        product_tile<Dot, n, kVectors, kAdd>(rest, left_stride, right, right_stride, steps, rest_out, out_stride);   \
        break;
        REST(1)
        REST(2)
        REST(3)
        REST(4)
        REST(5)
#undef REST
    }
}

// out [rows][columns] = (or +=, with kAdd) left [rows][steps] x right [steps][columns].
template <class Dot, bool kAdd>
static inline void product(
    int rows, int columns, int steps, const uint32_t* left, int left_stride, const uint32_t* right, int right_stride,
    float* out, int out_stride) {
    int column = 0;
    for (; column + kTileVectors * kLanes <= columns; column += kTileVectors * kLanes)
        product_rows<Dot, kTileVectors, kAdd>(
            rows, left, left_stride, right + column, right_stride, steps, out + column, out_stride);
    for (; column < columns; column += kLanes)
        product_rows<Dot, 1, kAdd>(
            rows, left, left_stride, right + column, right_stride, steps, out + column, out_stride);
}
