// Paged attention of a mixed batch: decodes and chunks of prompts in one call.
//
// The work is a list of items, made once a pass: some queries of one sequence against a range of its keys.
// An item of one key head is a task; threads take tasks as they become free, the longest first.
// A decode over many keys is cut into several items, whose results are merged.
#pragma once

#include <atomic>

#include "blocks.h"
#include "decode.h"
#include "tiles.h"

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
static inline void run_task(
    const AttentionCall& call, const Item& item, int kv_head, const Item* next_item, int next_kv_head,
    Scratch& scratch) {
#if defined(__AVX512BF16__)
    if constexpr (sizeof(Element) == sizeof(Bf16)) {
        if (item.num_queries > 1)
            run_by_strips<StripProducts>(call, item, kv_head, scratch);
        else
            run_decode<DecodeInBf16>(call, item, kv_head, next_item, next_kv_head, scratch);
        return;
    }
#endif
#if !defined(__AVX512F__)  // where rows become columns faster than their sums are added up across lanes
    if constexpr (sizeof(Element) == sizeof(float)) {
        if (item.num_queries == 1) {
            run_decode<DecodeInFloats>(call, item, kv_head, next_item, next_kv_head, scratch);
            return;
        }
    }
#endif
    run_in_blocks<Dot, Element>(call, item, kv_head, next_item, next_kv_head, scratch);
}

template <class Dot, class Element>
static void attend(const AttentionCall& call) {
    const int num_tasks = call.num_items * call.num_kv_heads, num_merges = call.num_merges * call.num_heads;
    std::atomic<int> taken{0};
#pragma omp parallel if (num_tasks > 1)
    {
        static thread_local Scratch scratch;
        const TilesInUse tiles;
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
