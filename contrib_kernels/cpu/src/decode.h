// A decode in bfloat16: one query against its keys, which are read once and straight from the cache.
//
// There is little to compute and much to read, so that nothing is packed into memory, and the rows that
// come next are asked for one at a time between the loads of those at hand: the processor can wait for
// a dozen lines of memory at once, and only an even stream of requests keeps it waiting for that many.
#pragma once

#include "blocks.h"

#if defined(__AVX512BF16__)

constexpr int kRowsAtOnce = 4;

static inline __m512i load_elements(const Bf16* from, int count) {
    if (count >= 32) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16((1u << count) - 1, from);
}

// scores [rows][64] of queries [rows][stride]; absent keys up to the next sixteen are the last one again.
template <int kRows>
static inline void score_keys(
    const Bf16* const* keys, int count, int size, const uint32_t* queries, int stride, const Bf16* const* next,
    float* scores) {
    for (int first = 0; first < count; first += 16) {
        Floats sums[kRows];
        for (int row = 0; row < kRows; row++) sums[row] = splat(0.0f);
        for (int i = 0; i < size; i += 32) {
            __m512i tile[16];
#pragma GCC unroll 16
            for (int key = 0; key < 16; key++) {
                tile[key] = load_elements(keys[first + key] + i, size - i);
                __builtin_prefetch(next[first + key] + i, 0, 2);
            }
            transpose_16x16(tile);
            const uint32_t* pairs[kRows];
            for (int row = 0; row < kRows; row++) pairs[row] = queries + row * stride + i / 2;
#pragma GCC unroll 16
            for (int step = 0; step < 16; step++)
#pragma GCC unroll 4
                for (int row = 0; row < kRows; row++)
                    sums[row] = Bf16Dot::add(sums[row], pairs[row][step], (Words)tile[step]);
        }
        for (int row = 0; row < kRows; row++) store(scores + row * kKeys + first, sums[row]);
    }
}

// mixed [rows][columns] += weights [rows][64] x values; an odd last key is there twice, with no weight.
template <int kRows>
static inline void mix_values(
    const Bf16* const* values, int count, int size, const uint32_t* weights, const Bf16* const* next, int columns,
    float* mixed) {
    alignas(64) static const uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_load_si512(kFirst), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int i = 0; i < columns; i += 32) {
        Floats sums[kRows][2];
        for (int row = 0; row < kRows; row++)
            for (int v = 0; v < 2; v++) sums[row][v] = load(mixed + row * columns + i + v * kLanes);
        for (int pair = 0; pair < (count + 1) / 2; pair++) {
            const __m512i even = load_elements(values[2 * pair] + i, size - i);
            const __m512i odd = load_elements(values[2 * pair + 1] + i, size - i);
            __builtin_prefetch(next[2 * pair] + i, 0, 2);
            __builtin_prefetch(next[2 * pair + 1] + i, 0, 2);
            const Words words[2] = {
                (Words)_mm512_permutex2var_epi16(even, low, odd), (Words)_mm512_permutex2var_epi16(even, high, odd)};
#pragma GCC unroll 4
            for (int row = 0; row < kRows; row++)
#pragma GCC unroll 2
                for (int v = 0; v < 2; v++)
                    sums[row][v] = Bf16Dot::add(sums[row][v], weights[row * (kKeys / 2) + pair], words[v]);
        }
        for (int row = 0; row < kRows; row++)
            for (int v = 0; v < 2; v++) store(mixed + row * columns + i + v * kLanes, sums[row][v]);
    }
}
// Up to 64 rows from key `first` on, and the last of them again until there are 64.
struct RowsOfKeys {
    const Bf16 *keys[kKeys], *values[kKeys];
    int count = 0;
    void find(const AttentionCall& call, const Item& item, int kv_head, int first) {
        count = item.end_key - first < kKeys ? item.end_key - first : kKeys;
        find_rows(call, item, kv_head, first, count, keys, values);
        for (int i = count; i < kKeys; i++) keys[i] = keys[count - 1], values[i] = values[count - 1];
    }
};

template <int kRows>
static inline void decode_block(
    const AttentionCall& call, const Item& item, int first, const RowsOfKeys& here, const RowsOfKeys& next,
    const uint32_t* queries, int query_stride, const Rows& rows, int first_row) {
    alignas(64) float scores[kRows * kKeys];
    alignas(64) uint32_t weights[kRows * kKeys / 2];
    score_keys<kRows>(
        here.keys, here.count, call.key_size, queries + first_row * query_stride, query_stride, next.keys, scores);
    for (int row = 0; row < kRows; row++)
        soften<Bf16Dot>(
            call, rows, first_row + row, first_key(call, item.position) - first, here.count, scores + row * kKeys,
            weights + row * (kKeys / 2));
    mix_values<kRows>(
        here.values, here.count, call.value_size, weights, next.values, rows.mixed_stride,
        rows.mixed + first_row * rows.mixed_stride);
}

static void run_decode(
    const AttentionCall& call, const Item& item, int kv_head, const Item* next_item, int next_kv_head,
    Scratch& scratch) {
    const int group = call.num_heads / call.num_kv_heads;
    const int query_stride = round_up(call.key_size, 32) / 2, value_columns = round_up(call.value_size, 32);
    scratch.need(4 * size_t(group) * (query_stride + value_columns + 2) + 64 * 4);
    uint32_t* queries = scratch.take<uint32_t>(size_t(group) * query_stride);
    const Rows rows{
        scratch.take<float>(group), scratch.take<float>(group), scratch.take<float>(size_t(group) * value_columns),
        value_columns};
    std::memset(queries, 0, sizeof(uint32_t) * group * query_stride);
    std::memset(rows.mixed, 0, sizeof(float) * group * value_columns);
    for (int row = 0; row < group; row++) {
        std::memcpy(
            queries + row * query_stride,
            static_cast<const Bf16*>(call.query) + (kv_head * group + row) * call.query_head_stride +
                item.query * call.query_token_stride,
            call.key_size * sizeof(Bf16));
        rows.largest[row] = -kInfinity;
        rows.total[row] = 0;
    }
    RowsOfKeys sides[2];
    sides[0].find(call, item, kv_head, item.first_key);
    int side = 0;
    for (int first = item.first_key; first < item.end_key; first += kKeys, side ^= 1) {
        const RowsOfKeys& here = sides[side];
        RowsOfKeys& next = sides[side ^ 1];
        if (first + kKeys < item.end_key)
            next.find(call, item, kv_head, first + kKeys);
        else if (next_item)  // the first rows of the task after this one
            next.find(call, *next_item, next_kv_head, next_item->first_key);
        else
            next = here;
        for (int row = 0; row < group; row += kRowsAtOnce) {
            switch (group - row) {
#define ROWS(n, label)                                                                                   \
    label:                                                                                               \
        decode_block<n>(call, item, first, here, next, queries, query_stride, rows, row);                \
        break;
                ROWS(1, case 1)
                ROWS(2, case 2)
                ROWS(3, case 3)
                ROWS(4, default)
#undef ROWS
            }
        }
    }
    for (int row = 0; row < group; row++)
        finish_row<Bf16>(
            call, item, item.query, kv_head * group + row, rows.mixed + row * value_columns, rows.largest[row],
            rows.total[row]);
}

#endif
