// A task by vectors: any format, any instruction set.
//
// Keys are walked 64 at a time: packed once, multiplied with all queries of the item (which share them: a
// head's group of queries, times the queries of the tile), softmaxed with a running maximum, then
// multiplied with the values.
#pragma once

#include "attention_call.h"

struct Rows {  // what is known of the queries of a task while its keys are walked
    float *largest, *total, *mixed;
    int mixed_stride;
};

// Scores of one query against 64 keys become weights; the running maximum and sum are kept up.
template <class Dot>
static inline void soften(
    const AttentionCall& call, const Rows& rows, int row, int first_visible, int end_visible, float* scores,
    void* weights) {
    constexpr int kVectors = kKeys / kLanes;
    Floats largest = splat(-kInfinity);
    Floats lane;
    for (int i = 0; i < kLanes; i++) lane[i] = float(i);
    const bool all_visible = first_visible <= 0 && end_visible >= kKeys;
    Floats s[kVectors];
    for (int v = 0; v < kVectors; v++) {
        s[v] = load(scores + v * kLanes) * splat(call.scaling);
        if (call.softcap > 0) s[v] = splat(call.softcap) * tanh_of(s[v] / splat(call.softcap));
        if (!all_visible) {
            const Floats key = lane + splat(float(v * kLanes));
            s[v] = key < splat(float(end_visible)) ? s[v] : splat(-kInfinity);
            s[v] = key < splat(float(first_visible)) ? splat(-kInfinity) : s[v];
        }
        largest = s[v] > largest ? s[v] : largest;
    }
    const float here = max_of(largest), before = rows.largest[row];
    const float now = here > before ? here : before;
    Floats total = splat(0.0f);
    const Floats shift = splat(now == -kInfinity ? 0.0f : now);
    for (int v = 0; v < kVectors; v++) {
        const Floats weight = exp_of(s[v] - shift);
        total += weight;
        if (Dot::kPerWord == 2)
            store(static_cast<Bf16*>(weights) + v * kLanes, weight);
        else
            store(static_cast<float*>(weights) + v * kLanes, weight);
    }
    if (now != before) {
        const float faded = before == -kInfinity ? 0.0f : exp_of(splat(before - now))[0];
        rows.total[row] *= faded;
        float* mixed = rows.mixed + row * rows.mixed_stride;
        for (int i = 0; i < rows.mixed_stride; i += kLanes) store(mixed + i, load(mixed + i) * splat(faded));
        rows.largest[row] = now;
    }
    rows.total[row] += sum_of(total);
}

template <class Dot, class Element>
static void run_in_blocks(
    const AttentionCall& call, const Item& item, int kv_head, const Item* next_item, int next_kv_head,
    Scratch& scratch) {
    const int group = call.num_heads / call.num_kv_heads, num_rows = item.num_queries * group;
    const int key_steps = (call.key_size + Dot::kPerWord - 1) / Dot::kPerWord;
    const int value_steps = kKeys / Dot::kPerWord, value_columns = round_up(call.value_size, kLanes);
    scratch.need(
        4 * (size_t(num_rows) * (key_steps + value_steps + kKeys + value_columns + 2) + size_t(key_steps) * kKeys +
             size_t(value_steps) * value_columns) + 64 * 16);
    uint32_t* queries = scratch.take<uint32_t>(size_t(num_rows) * key_steps);
    uint32_t* packed_keys = scratch.take<uint32_t>(size_t(key_steps) * kKeys);
    uint32_t* packed_values = scratch.take<uint32_t>(size_t(value_steps) * value_columns);
    uint32_t* weights = scratch.take<uint32_t>(size_t(num_rows) * value_steps);
    float* scores = scratch.take<float>(size_t(num_rows) * kKeys);
    Rows rows{
        scratch.take<float>(num_rows), scratch.take<float>(num_rows),
        scratch.take<float>(size_t(num_rows) * value_columns), value_columns};

    const Element* all_queries = static_cast<const Element*>(call.query);
    for (int row = 0; row < num_rows; row++) {
        const int64_t token = item.query + row / group, head = kv_head * group + row % group;
        pack_row<Dot>(
            all_queries + head * call.query_head_stride + token * call.query_token_stride, call.key_size,
            queries + size_t(row) * key_steps);
        rows.largest[row] = -kInfinity;
        rows.total[row] = 0;
    }
    std::memset(rows.mixed, 0, sizeof(float) * num_rows * value_columns);

    const Element *keys[2][kKeys], *values[2][kKeys];
    int count = item.end_key - item.first_key < kKeys ? item.end_key - item.first_key : kKeys;
    find_rows(call, item, kv_head, item.first_key, count, keys[0], values[0]);
    int side = 0;
    for (int first = item.first_key; first < item.end_key; first += kKeys, side ^= 1) {
        const int next = first + kKeys;
        const int next_count = item.end_key - next < kKeys ? item.end_key - next : kKeys;
        Ahead<Element> ahead{keys[side ^ 1], values[side ^ 1], next_count, call.key_size, call.value_size};
        if (next_count > 0) {
            find_rows(call, item, kv_head, next, next_count, keys[side ^ 1], values[side ^ 1]);
        } else if (next_item) {  // the first rows of the task after this one
            const int length = next_item->end_key - next_item->first_key;
            ahead.count = length < kKeys ? length : kKeys;
            find_rows(
                call, *next_item, next_kv_head, next_item->first_key, ahead.count, keys[side ^ 1], values[side ^ 1]);
        } else {
            ahead.count = 0;
        }
        ahead.part(0, 4);
        pack_transposed<Dot>(keys[side], count, call.key_size, kKeys, packed_keys);
        product<Dot, false>(num_rows, kKeys, key_steps, queries, key_steps, packed_keys, kKeys, scores, kKeys);
        ahead.part(1, 4);
        for (int row = 0; row < num_rows; row++) {
            const int position = item.position + row / group;
            const int end_visible = position - first + 1 < count ? position - first + 1 : count;
            soften<Dot>(
                call, rows, row, first_key(call, position) - first, end_visible, scores + row * kKeys,
                weights + size_t(row) * value_steps);
        }
        ahead.part(2, 4);
        pack_rows<Dot>(values[side], count, call.value_size, value_columns, packed_values);
        product<Dot, true>(
            num_rows, value_columns, (count + Dot::kPerWord - 1) / Dot::kPerWord, weights, value_steps, packed_values,
            value_columns, rows.mixed, value_columns);
        ahead.part(3, 4);
        count = next_count;
    }

    for (int row = 0; row < num_rows; row++)
        finish_row<Element>(
            call, item, item.query + row / group, kv_head * group + row % group,
            rows.mixed + size_t(row) * value_columns, rows.largest[row], rows.total[row]);
}
