// A decode: one query against its keys, which are read once and straight from the cache.
//
// There is little to compute and much to read, so that nothing is packed into memory, and the rows that
// come next are asked for between the loads of those at hand: the processor can wait for
// a dozen lines of memory at once, and only an even stream of requests keeps it waiting for that many.
#pragma once

#include <algorithm>

#include "blocks.h"
#include "decode_bf16.h"
#include "decode_floats.h"

// Up to 64 rows from key `first` on, and the last of them again until there are 64.
template <class Element>
struct RowsOfKeys {
    const Element *keys[kKeys], *values[kKeys];
    int count = 0;
    void find(const AttentionCall& call, const Item& item, int kv_head, int first) {
        count = item.end_key - first < kKeys ? item.end_key - first : kKeys;
        find_rows(call, item, kv_head, first, count, keys, values);
        for (int i = count; i < kKeys; i++) keys[i] = keys[count - 1], values[i] = values[count - 1];
    }
};

template <class Math, int kRows>
static inline void decode_block(
    const AttentionCall& call, const Item& item, int first, const RowsOfKeys<typename Math::Element>& here,
    const RowsOfKeys<typename Math::Element>& next, const uint32_t* queries, int query_stride, const Rows& rows,
    int first_row) {
    alignas(64) float scores[kRows * kKeys];
    constexpr int kWords = kKeys / Math::Dot::kPerWord;
    alignas(64) uint32_t weights[kRows * kWords];
    Math::template score_keys<kRows>(
        here.keys, here.count, call.key_size, queries + first_row * query_stride, query_stride, next.keys, scores);
    for (int row = 0; row < kRows; row++)
        soften<typename Math::Dot>(
            call, rows, first_row + row, first_key(call, item.position) - first, here.count, scores + row * kKeys,
            weights + row * kWords);
    Math::template mix_values<kRows>(
        here.values, here.count, call.value_size, weights, next.values, rows.mixed_stride,
        rows.mixed + first_row * rows.mixed_stride);
}

template <class Math>
static void run_decode(
    const AttentionCall& call, const Item& item, int kv_head, const Item* next_item, int next_kv_head,
    Scratch& scratch) {
    const int group = call.num_heads / call.num_kv_heads;
    typedef typename Math::Element Element;
    const int query_stride = round_up(call.key_size, Math::kColumns) / Math::Dot::kPerWord;
    const int value_columns = round_up(call.value_size, Math::kColumns);
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
            static_cast<const Element*>(call.query) + (kv_head * group + row) * call.query_head_stride +
                item.query * call.query_token_stride,
            call.key_size * sizeof(Element));
        rows.largest[row] = -kInfinity;
        rows.total[row] = 0;
    }
    RowsOfKeys<Element> sides[2];
    sides[0].find(call, item, kv_head, item.first_key);
    int side = 0;
    for (int first = item.first_key; first < item.end_key; first += kKeys, side ^= 1) {
        const RowsOfKeys<Element>& here = sides[side];
        RowsOfKeys<Element>& next = sides[side ^ 1];
        if (first + kKeys < item.end_key)
            next.find(call, item, kv_head, first + kKeys);
        else if (next_item)  // the first rows of the task after this one
            next.find(call, *next_item, next_kv_head, next_item->first_key);
        else
            next = here;
        for (int row = 0; row < group; row += Math::kRowsAtOnce) {
            switch (std::min(group - row, Math::kRowsAtOnce)) {
#define ROWS(n, label)                                                                                   \
    label:                                                                                               \
        decode_block<Math, n>(call, item, first, here, next, queries, query_stride, rows, row);                \
        break;
                ROWS(1, case 1)
                ROWS(2, case 2)
                ROWS(3, case 3)
                ROWS(4, case 4)
#undef ROWS
            }
        }
    }
    for (int row = 0; row < group; row++)
        finish_row<Element>(
            call, item, item.query, kv_head * group + row, rows.mixed + row * value_columns, rows.largest[row],
            rows.total[row]);
}
