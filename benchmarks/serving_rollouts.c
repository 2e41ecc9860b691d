/* The simulator of `engine/workloads/serving/pool.py` up to the first preemption, an exact copy in C: fast enough
 * for hundreds of runs, and to ask thousands of futures of each moment of a run.
 * `benchmarks/serving_engine.py` fills these structures; a test compares both simulators. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PREFIXES 64

typedef struct {
    int64_t prompt, output;
    int32_t prefix; /* -1 for none */
    int32_t prefix_tokens, own, shared;
    double computed, generated;
    double output_median; /* of the law that its output was drawn from */
} Sequence;

typedef struct {
    int32_t blocks, block_tokens, most_sequences, used, left, idle;
    /* Shared beginnings that nobody uses, the oldest first; and those in use, by number. */
    int32_t idle_key[MOST_PREFIXES], idle_blocks[MOST_PREFIXES];
    int32_t busy_blocks[MOST_PREFIXES], busy_count[MOST_PREFIXES];
    double prefill_per_s, step_s, sequence_s, token_s;
    double prompt_median, prompt_spread, output_median, output_spread;
    int32_t prefixes, prefix_tokens;
    double prefix_share;
    int64_t longest;
    double think_s; /* 0 for an open stream of requests */
} State;

/* What a server reports, as `Counters` and the engine say it. */
typedef struct {
    int32_t running, waiting, used;
    int64_t finished, queries, hits;
    double computed, generated;
} Reading;

typedef struct {
    uint64_t one, other;
} Random;

typedef struct {
    State state;
    Sequence *running, *waiting;
    int running_count, running_room, waiting_begin, waiting_count, waiting_room;
    double backlog; /* tokens of running sequences that must be computed before they go on */
    Reading reading;
} Engine;

/* xoroshiro128+ (Blackman and Vigna). */
static double draw_uniform(Random *random) {
    uint64_t one = random->one, other = random->other, sum = one + other;
    other ^= one;
    random->one = ((one << 24) | (one >> 40)) ^ other ^ (other << 16);
    random->other = (other << 37) | (other >> 27);
    return ((sum >> 11) + 0.5) * (1.0 / 9007199254740992.0);
}

static double draw_normal(Random *random) {
    double radius = sqrt(-2 * log(draw_uniform(random)));
    return radius * cos(6.283185307179586 * draw_uniform(random));
}

/* A standard normal number of at least `least` (Robert, 1995). */
static double draw_normal_above(Random *random, double least) {
    double rate = (least + sqrt(least * least + 4)) / 2;
    for (;;) {
        double drawn = least < 0.3 ? draw_normal(random) : least - log(draw_uniform(random)) / rate;
        double away = drawn - rate;
        if (least < 0.3 ? drawn >= least : draw_uniform(random) <= exp(-away * away / 2)) return drawn;
    }
}

static int find_idle(const State *state, int key) {
    for (int at = 0; at < state->idle; at++)
        if (state->idle_key[at] == key) return at;
    return -1;
}

static void drop_idle(State *state, int at) {
    int after = --state->idle - at;
    memmove(state->idle_key + at, state->idle_key + at + 1, sizeof(int32_t) * after);
    memmove(state->idle_blocks + at, state->idle_blocks + at + 1, sizeof(int32_t) * after);
}

static void add_idle(State *state, int key, int blocks) {
    state->idle_key[state->idle] = key;
    state->idle_blocks[state->idle++] = blocks;
}

static int make_room(State *state, int64_t blocks) {
    int64_t spare = state->blocks - state->used, cached = state->left;
    if (spare < blocks) return 0;
    for (int at = 0; at < state->idle; at++) cached += state->idle_blocks[at];
    int64_t missing = blocks - (spare - cached);
    if (missing > 0) {
        int64_t taken = missing < state->left ? missing : state->left;
        state->left -= taken;
        missing -= taken;
    }
    while (missing > 0 && state->idle) {
        missing -= state->idle_blocks[0];
        drop_idle(state, 0);
    }
    return missing <= 0;
}

/* Give the blocks of a sequence that has ended to the cache. */
static void release(State *state, Sequence *sequence) {
    int own = sequence->own, key = sequence->prefix;
    state->used -= own;
    if (sequence->shared && key >= 0) {
        if (!--state->busy_count[key]) {
            state->used -= state->busy_blocks[key];
            add_idle(state, key, state->busy_blocks[key]);
            state->busy_blocks[key] = 0;
        }
    } else if (key >= 0 && !state->busy_count[key] && find_idle(state, key) < 0) {
        int begin = sequence->prefix_tokens / state->block_tokens;
        if (own < begin) begin = own;
        if (begin) {
            add_idle(state, key, begin);
            own -= begin;
        }
    }
    state->left += own;
    sequence->own = sequence->shared = 0;
}

static int64_t count_blocks(const State *state, double tokens) {
    return ((int64_t)tokens + state->block_tokens - 1) / state->block_tokens;
}

static void ask(Engine *engine, const Sequence *sequence) {
    if (!engine->waiting_count) engine->waiting_begin = 0;
    if (engine->waiting_begin + engine->waiting_count == engine->waiting_room) {
        engine->waiting_room = 2 * engine->waiting_room + 64;
        engine->waiting = realloc(engine->waiting, sizeof(Sequence) * engine->waiting_room);
    }
    engine->waiting[engine->waiting_begin + engine->waiting_count++] = *sequence;
}

/* Prefill and decode for a second; return whether a sequence is preempted. */
static int compute(Engine *engine) {
    State *state = &engine->state;
    Reading *reading = &engine->reading;
    double step_s = state->step_s + state->sequence_s * engine->running_count;
    if (state->token_s) {
        double tokens = 0;
        for (int at = 0; at < engine->running_count; at++) tokens += engine->running[at].computed;
        step_s += state->token_s * tokens;
    }
    double steps = 1.0 / step_s, budget = state->prefill_per_s;
    int kept = 0, place = 0, is_full = 0;
    engine->backlog = 0;
    for (; place < engine->running_count; place++) {
        Sequence *it = &engine->running[place];
        double total = it->prompt + it->generated, missing = total - it->computed;
        int ends = 0, waits = 0;
        if (missing > 0) {
            double taken = missing < budget ? missing : budget;
            budget -= taken;
            it->computed += taken;
            reading->computed += taken;
            waits = taken < missing;
        }
        if (waits) {
            engine->backlog += total - it->computed;
        } else {
            double grown = it->output - it->generated;
            if (steps < grown) grown = steps;
            int64_t held = (int64_t)(it->own + it->shared) * state->block_tokens;
            if ((int64_t)(total + grown) > held) {
                int64_t needed = count_blocks(state, total + grown) - it->own - it->shared;
                is_full = !make_room(state, needed);
                if (is_full) break;
                state->used += (int32_t)needed;
                it->own += (int32_t)needed;
            }
            it->generated += grown;
            it->computed = it->prompt + it->generated;
            reading->generated += grown;
            ends = it->generated >= it->output;
        }
        if (ends) {
            release(state, it);
            reading->finished++;
        } else {
            if (kept < place) engine->running[kept] = *it;
            kept++;
        }
    }
    if (!is_full) engine->running_count = kept;
    return is_full;
}

static void admit(Engine *engine) {
    State *state = &engine->state;
    double backlog = engine->backlog;
    while (engine->waiting_count && engine->running_count < state->most_sequences &&
           backlog < state->prefill_per_s) {
        Sequence it = engine->waiting[engine->waiting_begin];
        int found = 0, idle = -1;
        if (it.prefix >= 0) {
            int known = state->busy_count[it.prefix] ? state->busy_blocks[it.prefix] : 0;
            idle = find_idle(state, it.prefix);
            if (!state->busy_count[it.prefix] && idle >= 0) known = state->idle_blocks[idle];
            found = it.prefix_tokens / state->block_tokens;
            if (known < found) found = known;
        }
        int64_t needed = count_blocks(state, it.prompt + it.generated + 1) - found;
        int held = found && idle >= 0 ? state->idle_blocks[idle] : 0;
        if (state->blocks - state->used - held < needed) return;
        engine->waiting_begin++;
        engine->waiting_count--;
        if (found) {
            it.shared = found;
            if (state->busy_count[it.prefix]) {
                state->busy_count[it.prefix]++;
            } else {
                state->busy_blocks[it.prefix] = state->idle_blocks[idle];
                state->busy_count[it.prefix] = 1;
                state->used += state->idle_blocks[idle];
                drop_idle(state, idle);
            }
        }
        if (!make_room(state, needed)) {
            release(state, &it);
            engine->waiting[--engine->waiting_begin] = it;
            engine->waiting_count++;
            return;
        }
        state->used += (int32_t)needed;
        it.own = (int32_t)needed;
        it.computed = (double)found * state->block_tokens;
        if (engine->running_count == engine->running_room) {
            engine->running_room = 2 * engine->running_room + 64;
            engine->running = realloc(engine->running, sizeof(Sequence) * engine->running_room);
        }
        engine->running[engine->running_count++] = it;
        backlog += it.prompt + it.generated - it.computed;
        engine->reading.queries += it.prompt;
        engine->reading.hits += (int64_t)found * state->block_tokens;
    }
}

static void begin_engine(Engine *engine, const State *state) {
    memset(engine, 0, sizeof(Engine));
    engine->state = *state;
}

Engine *make_engine(const State *state) {
    Engine *engine = malloc(sizeof(Engine));
    begin_engine(engine, state);
    return engine;
}

static void end_engine(Engine *engine) {
    free(engine->running);
    free(engine->waiting);
}

void free_engine(Engine *engine) {
    end_engine(engine);
    free(engine);
}

/* Let a second pass in which so many requests come; return whether a sequence is preempted, after which an
 * engine cannot go on. */
int advance_engine(Engine *engine, const Sequence *asked, int count, Reading *reading) {
    for (int at = 0; at < count; at++) ask(engine, &asked[at]);
    int is_full = compute(engine);
    if (!is_full) admit(engine);
    engine->reading.running = engine->running_count;
    engine->reading.waiting = engine->waiting_count;
    engine->reading.used = engine->state.used;
    *reading = engine->reading;
    return is_full;
}

/* Draw how long the output of a present request will be, given how much of it there is. */
static void redraw(const State *state, Sequence *it, Random *random) {
    double least = floor(it->generated);
    double drawn = least > 0 ? draw_normal_above(random, log(least / it->output_median) / state->output_spread)
                             : draw_normal(random);
    int64_t most = state->longest - it->prompt;
    int64_t output = (int64_t)(it->output_median * exp(state->output_spread * drawn)) + 1;
    if (output <= it->generated) output = (int64_t)it->generated + 1;
    if (output > most) output = most;
    it->output = output < 1 ? 1 : output;
}

static Sequence draw_request(const State *state, Random *random, double factor) {
    Sequence it = {0};
    int64_t own = (int64_t)(factor * state->prompt_median * exp(state->prompt_spread * draw_normal(random))) + 1;
    int64_t output = (int64_t)(factor * state->output_median * exp(state->output_spread * draw_normal(random))) + 1;
    int has_prefix = state->prefixes > 0 && draw_uniform(random) < state->prefix_share;
    it.prefix = has_prefix ? (int)(draw_uniform(random) * state->prefixes) : -1;
    int64_t shared = has_prefix ? state->prefix_tokens : 0;
    it.prompt = own + shared < state->longest / 2 ? own + shared : state->longest / 2;
    int64_t most = state->longest - it.prompt;
    if (output > most) output = most;
    it.output = output < 1 ? 1 : output;
    it.prefix_tokens = (int32_t)(shared < it.prompt ? shared : it.prompt);
    return it;
}

/* Draw the requests of one second. */
static void draw_arrivals(Engine *engine, Random *random, double rate, double factor) {
    const State *state = &engine->state;
    if (state->think_s > 0) {
        rate -= engine->running_count + engine->waiting_count;
        rate = rate > 0 ? rate / state->think_s : 0;
    }
    if (!(rate > 0)) return;
    for (double at_s = -log(draw_uniform(random)) / rate; at_s < 1; at_s -= log(draw_uniform(random)) / rate) {
        Sequence it = draw_request(state, random, factor);
        ask(engine, &it);
    }
}

static void copy_sequences(Sequence **to, int *room, const Sequence *from, int count) {
    if (*room < count + 64) {
        *room = 2 * count + 256;
        *to = realloc(*to, sizeof(Sequence) * *room);
    }
    if (count) memcpy(*to, from, sizeof(Sequence) * count);
}

/* For each of `futures`, find the second of the first preemption, or one more than `seconds`.
 *
 * rates, factors: for each second to come. redraws: whether outputs of present requests are drawn again, from
 * their law. screen: where so many futures have no preemption, the rest counts as having none. Returns the most
 * blocks that were used. */
int roll_ahead(const Engine *begin, const double *rates, const double *factors, int redraws, int seconds,
               int futures, int screen, uint64_t seed, int32_t *found) {
    Engine engine;
    int has_any = 0, most_used = 0;
    begin_engine(&engine, &begin->state);
    for (int future = 0; future < futures; future++) {
        found[future] = seconds + 1;
        if (future >= screen && !has_any) continue;
        Random random = {seed * 0x9E3779B97F4A7C15ull + future * 0xD1B54A32D192ED03ull + 1,
                         seed ^ (0xBF58476D1CE4E5B9ull * (future + 7))};
        for (int times = 0; times < 8; times++) draw_uniform(&random);
        engine.state = begin->state;
        copy_sequences(&engine.running, &engine.running_room, begin->running, begin->running_count);
        engine.running_count = begin->running_count;
        copy_sequences(&engine.waiting, &engine.waiting_room, begin->waiting + begin->waiting_begin,
                       begin->waiting_count);
        engine.waiting_begin = 0;
        engine.waiting_count = begin->waiting_count;
        if (redraws) {
            for (int at = 0; at < engine.running_count; at++) redraw(&engine.state, &engine.running[at], &random);
            for (int at = 0; at < engine.waiting_count; at++) redraw(&engine.state, &engine.waiting[at], &random);
        }
        for (int second = 1; second <= seconds; second++) {
            draw_arrivals(&engine, &random, rates[second - 1], factors[second - 1]);
            if (compute(&engine)) {
                found[future] = second;
                has_any = 1;
                most_used = begin->state.blocks;
                break;
            }
            admit(&engine);
            if (engine.state.used > most_used) most_used = engine.state.used;
        }
    }
    end_engine(&engine);
    return most_used;
}
