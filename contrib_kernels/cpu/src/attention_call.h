// What a call of attention is, and what every way to compute it shares: where keys lie, and how a result is written.
#pragma once

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

// Position of the earliest key that a query sees.
static inline int first_key(const AttentionCall& call, int position) {
    if (call.chunk) return position / call.chunk * call.chunk;
    return call.window ? position - call.window + 1 : 0;
}

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

// Where the rows of `count` keys from `first` on lie.
template <class Element>
static inline void find_rows(
    const AttentionCall& call, const Item& item, int kv_head, int first, int count, const Element** keys,
    const Element** values) {
    const int32_t* table = call.tables + item.table;
    const Element* all_keys = static_cast<const Element*>(call.keys) + kv_head * call.key_head_stride;
    const Element* all_values = static_cast<const Element*>(call.values) + kv_head * call.value_head_stride;
    int block = first / call.block_size, offset = first % call.block_size;
    for (int i = 0; i < count; block++, offset = 0) {
        const int64_t slot = int64_t(table[block]) * call.block_size + offset;
        const Element *key = all_keys + slot * call.key_size, *value = all_values + slot * call.value_size;
        const int left = call.block_size - offset, end = count - i < left ? count : i + left;
        for (; i < end; i++, key += call.key_size, value += call.value_size) keys[i] = key, values[i] = value;
    }
}

template <class Element>
static inline void prefetch_row(const Element* row, int size) {
    for (const char* line = reinterpret_cast<const char*>(row); line < reinterpret_cast<const char*>(row + size);
         line += 64)
        __builtin_prefetch(line, 0, 2);
}

// Blocks lie all over memory and no prefetcher of the processor follows a block table, so we do: the rows
// that come next are asked for a part at a time, between the stages of the work on those at hand. All at
// once they would only stand in line.
template <class Element>
struct Ahead {
    const Element* const* keys;
    const Element* const* values;
    int count, key_size, value_size;
    void part(int which, int parts) const {
        for (int i = count * which / parts; i < count * (which + 1) / parts; i++) {
            prefetch_row(keys[i], key_size);
            prefetch_row(values[i], value_size);
        }
    }
};

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

// Writes the result of a row, or leaves that of a cut item to be merged.
template <class Element>
static inline void finish_row(
    const AttentionCall& call, const Item& item, int token, int head, const float* mixed, float largest, float total) {
    if (item.part < 0) return write_output<Element>(call, token, head, mixed, largest, total);
    float* part = call.parts + (size_t(item.part) * call.num_heads + head) * (call.value_size + 2);
    part[0] = largest;
    part[1] = total;
    std::memcpy(part + 2, mixed, sizeof(float) * call.value_size);
}
