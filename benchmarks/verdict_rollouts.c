/* `ModelledProcess` of `verdict_runs/modelled.py` on the rules of `analyzers/allocator_model`: an exact copy in C
 * of what decides when memory runs out, fast enough to ask many futures of each moment of a run.
 * `benchmarks/verdict_bound.py` calls it; a test compares both, step by step. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define LEAST_BLOCK 512
#define SMALL_LIMIT MIB
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define LARGE_LIMIT (10 * MIB)
#define STATE_PARTS 24
#define MOST_PIECES 24
#define PARTS 16
static const double SHARES[4] = {0.03, 0.09, 0.06, 0.06};
#define WORKSPACE 0.04

typedef struct {
    int64_t address, size;
    int32_t prev, next; /* neighbours in the segment; -1 for none */
    int32_t is_small, is_free;
} Block;

typedef struct {
    int64_t size, address;
    int32_t block, unused;
} Free;

typedef struct {
    int64_t size, address;
} Range;

/* A growing array of plain things. */
typedef struct {
    void *at;
    int32_t count, room;
} Array;

typedef struct {
    int64_t size;
    int32_t block, unused;
} Kept;

typedef struct {
    Array blocks, spare, small, large, returned, kept;
    int32_t kept_begin;
    int64_t next_address, total, used, allocated, kept_bytes, state_bytes, peak, retries;
    int32_t steps, has_failed;
} Process;

static void grow(Array *array, int32_t count, size_t size) {
    if (count <= array->room) return;
    array->room = count < 64 ? 64 : count * 2;
    array->at = realloc(array->at, size * array->room);
}

static void copy_array(Array *to, const Array *from, size_t size) {
    grow(to, from->count, size);
    if (from->count) memcpy(to->at, from->at, size * from->count);
    to->count = from->count;
}

static Array *list_of(Process *process, int is_small) { return is_small ? &process->small : &process->large; }

/* The place of the first free block that is not before (size, address). */
static int32_t find(const Array *list, int64_t size, int64_t address) {
    const Free *found = list->at;
    int32_t low = 0, high = list->count;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (found[middle].size < size || (found[middle].size == size && found[middle].address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put(Process *process, int32_t number) {
    Block *block = (Block *)process->blocks.at + number;
    Array *list = list_of(process, block->is_small);
    int32_t at = find(list, block->size, block->address);
    grow(list, list->count + 1, sizeof(Free));
    Free *found = list->at;
    memmove(found + at + 1, found + at, sizeof(Free) * (list->count - at));
    found[at] = (Free){block->size, block->address, number, 0};
    list->count++;
    block->is_free = 1;
}

static void drop(Process *process, int32_t number) {
    Block *block = (Block *)process->blocks.at + number;
    Array *list = list_of(process, block->is_small);
    int32_t at = find(list, block->size, block->address);
    Free *found = list->at;
    memmove(found + at, found + at + 1, sizeof(Free) * (list->count - at - 1));
    list->count--;
    block->is_free = 0;
}

static int32_t new_block(Process *process, int64_t address, int64_t size, int is_small) {
    int32_t number;
    if (process->spare.count) {
        number = ((int32_t *)process->spare.at)[--process->spare.count];
    } else {
        grow(&process->blocks, process->blocks.count + 1, sizeof(Block));
        number = process->blocks.count++;
    }
    ((Block *)process->blocks.at)[number] = (Block){address, size, -1, -1, is_small, 0};
    return number;
}

static void forget_block(Process *process, int32_t number) {
    grow(&process->spare, process->spare.count + 1, sizeof(int32_t));
    ((int32_t *)process->spare.at)[process->spare.count++] = number;
}

static int32_t reserve(Process *process, int64_t size, int is_small) {
    int64_t segment = is_small ? SMALL_SEGMENT
                               : (size < LARGE_LIMIT ? LARGE_SEGMENT : (size + SMALL_SEGMENT - 1) / SMALL_SEGMENT * SMALL_SEGMENT);
    if (process->used + segment > process->total) return -1;
    process->used += segment;
    Range *returned = process->returned.at;
    int32_t lowest = -1;
    for (int32_t at = 0; at < process->returned.count; at++)
        if (returned[at].size == segment && (lowest < 0 || returned[at].address < returned[lowest].address)) lowest = at;
    int64_t address = process->next_address;
    if (lowest >= 0) {
        address = returned[lowest].address;
        returned[lowest] = returned[--process->returned.count];
    } else {
        process->next_address += segment;
    }
    return new_block(process, address, segment, is_small);
}

/* Give all free segments back to the device. */
static void release_cached(Process *process) {
    for (int is_small = 0; is_small < 2; is_small++) {
        Array *list = list_of(process, is_small);
        Free *found = list->at;
        int32_t left = 0;
        for (int32_t at = 0; at < list->count; at++) {
            Block *block = (Block *)process->blocks.at + found[at].block;
            if (block->prev >= 0 || block->next >= 0) {
                found[left++] = found[at];
                continue;
            }
            grow(&process->returned, process->returned.count + 1, sizeof(Range));
            ((Range *)process->returned.at)[process->returned.count++] = (Range){block->size, block->address};
            process->used -= block->size;
            forget_block(process, found[at].block);
        }
        list->count = left;
    }
}

/* Return an allocated block of at least so many bytes, or -1 where there is no room. */
static int32_t take(Process *process, int64_t requested) {
    int64_t size = (requested + LEAST_BLOCK - 1) / LEAST_BLOCK * LEAST_BLOCK;
    int is_small = size <= SMALL_LIMIT;
    Array *list = list_of(process, is_small);
    int32_t at = find(list, size, 0), number;
    if (at < list->count) {
        number = ((Free *)list->at)[at].block;
        drop(process, number);
    } else {
        number = reserve(process, size, is_small);
        if (number < 0) {
            release_cached(process);
            process->retries++;
            number = reserve(process, size, is_small);
            if (number < 0) return -1;
        }
    }
    Block *block = (Block *)process->blocks.at + number;
    if (block->size - size >= (is_small ? LEAST_BLOCK : SMALL_LIMIT + 1)) {
        int32_t front = new_block(process, block->address, size, is_small);
        block = (Block *)process->blocks.at + number;
        Block *cut = (Block *)process->blocks.at + front;
        cut->prev = block->prev;
        cut->next = number;
        if (cut->prev >= 0) ((Block *)process->blocks.at)[cut->prev].next = front;
        block->prev = front;
        block->address += size;
        block->size -= size;
        put(process, number);
        number = front;
    }
    process->allocated += ((Block *)process->blocks.at)[number].size;
    return number;
}

static void give(Process *process, int32_t number) {
    Block *blocks = process->blocks.at, *block = blocks + number;
    process->allocated -= block->size;
    if (block->prev >= 0 && blocks[block->prev].is_free) {
        int32_t prev = block->prev;
        drop(process, prev);
        block->address = blocks[prev].address;
        block->size += blocks[prev].size;
        block->prev = blocks[prev].prev;
        if (block->prev >= 0) blocks[block->prev].next = number;
        forget_block(process, prev);
    }
    if (block->next >= 0 && blocks[block->next].is_free) {
        int32_t next = block->next;
        drop(process, next);
        block->size += blocks[next].size;
        block->next = blocks[next].next;
        if (block->next >= 0) blocks[block->next].prev = number;
        forget_block(process, next);
    }
    put(process, number);
}

/* Hold so much more than before, or less: then the oldest pieces go first. Returns 0 where there is no room. */
static int keep(Process *process, int64_t more) {
    while (more < 0 && process->kept_begin < process->kept.count) {
        Kept piece = ((Kept *)process->kept.at)[process->kept_begin++];
        give(process, piece.block);
        process->kept_bytes -= piece.size;
        more += piece.size;
    }
    if (process->kept_begin > 4096 && process->kept_begin > process->kept.count / 2) {
        process->kept.count -= process->kept_begin;
        memmove(process->kept.at, (Kept *)process->kept.at + process->kept_begin, sizeof(Kept) * process->kept.count);
        process->kept_begin = 0;
    }
    if (more <= 0) return 1;
    int64_t each = (more + MOST_PIECES - 1) / MOST_PIECES;
    if (each < MIB) each = MIB;
    for (int64_t start = 0; start < more; start += each) {
        int64_t size = more - start < each ? more - start : each;
        int32_t block = take(process, size);
        if (block < 0) return 0;
        grow(&process->kept, process->kept.count + 1, sizeof(Kept));
        ((Kept *)process->kept.at)[process->kept.count++] = (Kept){size, block, 0};
        process->kept_bytes += size;
    }
    return 1;
}

static int take_state(Process *process, int64_t thirds) {
    int64_t part = process->state_bytes * thirds / 3 / STATE_PARTS;
    for (int at = 0; at < STATE_PARTS; at++)
        if (take(process, part) < 0) return 0;
    return 1;
}

Process *open_process(int64_t limit, int64_t state_bytes) {
    Process *process = calloc(1, sizeof(Process));
    process->total = limit;
    process->state_bytes = state_bytes;
    process->next_address = 0x7F0000000000;
    take_state(process, 1);
    return process;
}

void close_process(Process *process) {
    Array *arrays[] = {&process->blocks, &process->spare, &process->small, &process->large, &process->returned, &process->kept};
    for (int at = 0; at < 6; at++) free(arrays[at]->at);
    free(process);
}

/* Run one step; returns 0 where it found no room. */
static int run_step(Process *process, int64_t activation, int64_t kept, int64_t room) {
    int32_t live[PARTS + 1];
    int count = 0, is_served = 1;
    process->total = room;
    for (; count < PARTS && is_served; count += is_served) {
        live[count] = take(process, (int64_t)(activation * SHARES[count % 4]));
        is_served = live[count] >= 0;
    }
    is_served = is_served && keep(process, kept - process->kept_bytes);
    if (is_served) {
        live[count] = take(process, (int64_t)(activation * WORKSPACE));
        is_served = live[count] >= 0;
        count += is_served;
    }
    process->peak = process->allocated;
    process->has_failed = !is_served;
    if (!is_served) return 0;
    while (count) give(process, live[--count]);
    if (process->steps++ == 0) take_state(process, 2);
    return 1;
}

/* Run one step and write: allocated before and after, peak, reserved, stranded, retries. Returns 0 without room. */
int step_process(Process *process, int64_t activation, int64_t kept, int64_t room, int64_t *row) {
    row[0] = process->allocated;
    int is_served = run_step(process, activation, kept, room);
    row[1] = process->allocated;
    row[2] = process->peak > row[0] ? process->peak : row[0];
    row[3] = process->used;
    row[4] = 0;
    row[5] = process->retries;
    for (int is_small = 0; is_small < 2; is_small++) {
        Array *list = list_of(process, is_small);
        for (int32_t at = 0; at < list->count; at++) {
            Block *block = (Block *)process->blocks.at + ((Free *)list->at)[at].block;
            if (block->prev >= 0 || block->next >= 0) row[4] += block->size;
        }
    }
    return is_served;
}

/* Return the step, counted from 0, in which a copy of a process finds no room; the number of steps where none. */
int roll_ahead(const Process *process, Process *copy, const int64_t *activation, const int64_t *kept, const int64_t *room,
               int steps) {
    copy_array(&copy->blocks, &process->blocks, sizeof(Block));
    copy_array(&copy->spare, &process->spare, sizeof(int32_t));
    copy_array(&copy->small, &process->small, sizeof(Free));
    copy_array(&copy->large, &process->large, sizeof(Free));
    copy_array(&copy->returned, &process->returned, sizeof(Range));
    copy_array(&copy->kept, &process->kept, sizeof(Kept));
    copy->kept_begin = process->kept_begin;
    copy->next_address = process->next_address;
    copy->used = process->used;
    copy->allocated = process->allocated;
    copy->kept_bytes = process->kept_bytes;
    copy->state_bytes = process->state_bytes;
    copy->retries = process->retries;
    copy->steps = process->steps;
    for (int at = 0; at < steps; at++)
        if (!run_step(copy, activation[at], kept[at], room[at])) return at;
    return steps;
}
