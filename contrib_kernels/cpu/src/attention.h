// Paged attention of a mixed batch: decodes and chunks of prompts in one call.
//
// The work is a list of items, made once a pass: some queries of one sequence against a range of its keys.
// An item of one key head is a task; threads take tasks as they become free, the longest first. Keys
// are walked 64 at a time: packed once, multiplied with all queries of the item (which share them: a
// head's group of queries, times the queries of the tile), softmaxed with a running maximum, then
// multiplied with the values. A decode over many keys is cut into several items, whose results are merged.
#pragma once

#include <atomic>
#include <cstdlib>

#include "dot.h"

struct Item {
    int32_t query;           // index in the batch of the first of its queries
    int32_t num_queries;     // one if it is cut
    int32_t position;        // in its sequence, of the first query
    int32_t first_key, end_key;
    int32_t table;           // where its sequence's block table begins
    int32_t part;            // where a cut item leaves its result; -1 for a whole one
    int32_t unused;
};

struct Merge {
    int32_t query, first_part, num_parts, unused;
};

struct AttentionCall {
    const void* query;  // element (head, token, i) at head * head_stride + token * token_stride + i
    int64_t query_head_stride, query_token_stride;
    const void* keys;  // [kv heads][blocks][block size][key size]
    const void* values;
    int64_t key_head_stride, value_head_stride;
    void* output;  // [tokens][heads][value size], tokens by a stride
    int64_t output_token_stride;
    const float* sinks;  // [heads] or null
    const Item* items;
    const Merge* merges;
    const int32_t* tables;
    float* parts;  // [parts][heads][value size + 2]
    int32_t num_items, num_merges;
    int32_t num_heads, num_kv_heads, key_size, value_size, block_size, window, chunk, is_bf16;
    float scaling, softcap;
};

constexpr int kKeys = 64;

static inline int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// A thread's memory for one task, kept for the next one.
struct Scratch {
    char* memory = nullptr;
    size_t size = 0, used = 0;
    void need(size_t bytes) {
        used = 0;
        if (bytes <= size) return;
        std::free(memory);
        size = (bytes + 4095) / 4096 * 4096;
        memory = static_cast<char*>(std::aligned_alloc(64, size));
    }
    template <class Type>
    Type* take(size_t count) {
        Type* piece = reinterpret_cast<Type*>(memory + used);
        used += (count * sizeof(Type) + 63) / 64 * 64;
        return piece;
    }
};

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

template <class Element>
static inline void write_output(
    const AttentionCall& call, int token, int head, const float* mixed, float largest, float total) {
    float fade = 1.0f;
    if (call.sinks) {
        const float sink = call.sinks[head];
        const float now = sink > largest ? sink : largest;
        fade = std::exp(largest - now);
        total = total * fade + std::exp(sink - now);
    }
    const Floats factor = splat(fade / total);
    Element* out =
        static_cast<Element*>(call.output) + token * call.output_token_stride + int64_t(head) * call.value_size;
    for (int i = 0; i < call.value_size; i += kLanes)
        store_some(out + i, load(mixed + i) * factor, call.value_size - i);
}

template <class Element>
static inline void find_rows(
    const AttentionCall& call, const Item& item, int kv_head, int first, int count, const Element** keys,
    const Element** values) {
    const int32_t* table = call.tables + item.table;
    const Element* all_keys = static_cast<const Element*>(call.keys) + kv_head * call.key_head_stride;
    const Element* all_values = static_cast<const Element*>(call.values) + kv_head * call.value_head_stride;
    int block = first / call.block_size, offset = first % call.block_size;
    for (int i = 0; i < count; i++) {
        const int64_t slot = int64_t(table[block]) * call.block_size + offset;
        keys[i] = all_keys + slot * call.key_size;
        values[i] = all_values + slot * call.value_size;
        if (++offset == call.block_size) offset = 0, block++;
    }
}

template <class Element>
static inline void prefetch_row(const Element* row, int size) {
    for (const char* line = reinterpret_cast<const char*>(row); line < reinterpret_cast<const char*>(row + size);
         line += 64)
        __builtin_prefetch(line, 0, 2);
}

// Blocks lie all over memory and no prefetcher of the processor follows a block table, so we do: the rows
// that come next are asked for a quarter at a time, between the stages of the work on those at hand.
// All at once they would only stand in line.
template <class Element>
struct Ahead {
    const Element* const* keys;
    const Element* const* values;
    int count, key_size, value_size;
    void quarter(int which) const {
        for (int i = count * which / 4; i < count * (which + 1) / 4; i++) {
            prefetch_row(keys[i], key_size);
            prefetch_row(values[i], value_size);
        }
    }
};

template <class Dot, class Element>
static void run_task(
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
        ahead.quarter(0);
        pack_transposed<Dot>(keys[side], count, call.key_size, kKeys, packed_keys);
        product<Dot, false>(num_rows, kKeys, key_steps, queries, key_steps, packed_keys, kKeys, scores, kKeys);
        ahead.quarter(1);
        for (int row = 0; row < num_rows; row++) {
            const int position = item.position + row / group;
            const int first_visible = call.chunk    ? position / call.chunk * call.chunk
                                      : call.window ? position - call.window + 1
                                                    : 0;
            const int end_visible = position - first + 1 < count ? position - first + 1 : count;
            soften<Dot>(
                call, rows, row, first_visible - first, end_visible, scores + row * kKeys,
                weights + size_t(row) * value_steps);
        }
        ahead.quarter(2);
        pack_rows<Dot>(values[side], count, call.value_size, value_columns, packed_values);
        product<Dot, true>(
            num_rows, value_columns, (count + Dot::kPerWord - 1) / Dot::kPerWord, weights, value_steps, packed_values,
            value_columns, rows.mixed, value_columns);
        ahead.quarter(3);
        count = next_count;
    }

    for (int row = 0; row < num_rows; row++) {
        const int head = kv_head * group + row % group;
        const float* mixed = rows.mixed + size_t(row) * value_columns;
        if (item.part < 0) {
            write_output<Element>(
                call, item.query + row / group, head, mixed, rows.largest[row], rows.total[row]);
        } else {
            float* part = call.parts + (size_t(item.part) * call.num_heads + head) * (call.value_size + 2);
            part[0] = rows.largest[row];
            part[1] = rows.total[row];
            std::memcpy(part + 2, mixed, sizeof(float) * call.value_size);
        }
    }
}

template <class Element>
static void merge_parts(const AttentionCall& call, const Merge& merge, int head, Scratch& scratch) {
    const int columns = round_up(call.value_size, kLanes);
    scratch.need(4 * columns + 64);
    float* mixed = scratch.take<float>(columns);
    std::memset(mixed, 0, sizeof(float) * columns);
    const size_t part_size = call.value_size + 2;
    const float* parts = call.parts + (size_t(merge.first_part) * call.num_heads + head) * part_size;
    float largest = -kInfinity, total = 0;
    for (int i = 0; i < merge.num_parts; i++) {
        const float part_largest = parts[i * call.num_heads * part_size];
        largest = part_largest > largest ? part_largest : largest;
    }
    for (int i = 0; i < merge.num_parts; i++) {
        const float* part = parts + i * call.num_heads * part_size;
        const float fade = part[0] == -kInfinity ? 0.0f : std::exp(part[0] - largest);
        total += part[1] * fade;
        for (int j = 0; j < call.value_size; j++) mixed[j] += part[2 + j] * fade;
    }
    write_output<Element>(call, merge.query, head, mixed, largest, total);
}

template <class Dot, class Element>
static void attend(const AttentionCall& call) {
    const int num_tasks = call.num_items * call.num_kv_heads, num_merges = call.num_merges * call.num_heads;
    std::atomic<int> taken{0};
#pragma omp parallel if (num_tasks > 1)
    {
        static thread_local Scratch scratch;
        for (int task = taken++, next; task < num_tasks; task = next) {
            next = taken++;
            const int heads = call.num_kv_heads;
            run_task<Dot, Element>(
                call, call.items[task / heads], task % heads, next < num_tasks ? call.items + next / heads : nullptr,
                next % heads, scratch);
        }
#pragma omp barrier
#pragma omp for schedule(static)
        for (int task = 0; task < num_merges; task++)
            merge_parts<Element>(call, call.merges[task / call.num_heads], task % call.num_heads, scratch);
    }
}
