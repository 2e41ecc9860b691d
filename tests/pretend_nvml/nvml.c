/*
 * A pretend libnvidia-ml.so.1: it answers from a state file that a test, a benchmark or a demo writes.
 *
 * The file named by PRETEND_NVML_STATE is mapped shared, so whoever writes it changes what the next call
 * answers, in this process or another. `driver.py` has the same layout; both check `size` on opening.
 * Function names, versions and structs are those of NVIDIA's public NVML API reference.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEVICES 128
#define MAX_INSTANCES 7
#define MAX_PROCESSES 32
#define MAX_LANES 18
#define MAX_XIDS 8
#define MAGIC 0x4C4D564Eu
#define HANDLE_TAG 0x4E5600000000ull
#define NOT_APPLICABLE 0xFFFFFFFFu

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

/* Groups of functions that can be made to fail together; the order is that of `FunctionClass` in driver.py. */
enum {
    MEMORY, UTILIZATION, TEMPERATURE, POWER, COMPUTE_PROCESSES, GRAPHICS_PROCESSES, MPS_PROCESSES,
    NAME, UUID, PCI, FAN, CLOCK, PERFORMANCE_STATE, ECC, ADDRESSING_MODE, MIG, VIRTUALIZATION, BAR1,
    ENCODER, PROCESS_UTILIZATION, OTHER, NVLINK, TOPOLOGY, THROTTLING, THROUGHPUT, FIELDS, REMAPPED,
    COMPUTE_MODE, POWER_LIMIT, CLASS_COUNT = 32
};

typedef struct {
    uint64_t total, reserved, base;
    double ramp_bytes_per_s;
    double sawtooth_bytes, sawtooth_period_s;
    double spike_bytes, spike_period_s, spike_length_s;
    double start_s; /* of CLOCK_MONOTONIC */
} Memory;

typedef struct {
    uint32_t pid, kind; /* kind: 0 compute, 1 graphics, 2 MPS */
    uint64_t used;      /* all ones where the driver does not tell */
    uint32_t sm_percent, memory_percent; /* both 0: idle, which the driver does not list */
} Process;

typedef struct {
    uint32_t count, reserved;
    Process entries[MAX_PROCESSES];
} Processes;

typedef struct {
    uint32_t present, gpu_instance, compute_instance, slices;
    char uuid[96];
    char name[96];
    Memory memory;
    Processes processes;
} Instance;

/* hang: 1 holds every call on a handle, 2 also the one that gives the handle out. */
typedef struct {
    uint32_t present, lost, hang, waiting, delay_us, generation;
    uint32_t crash_on_dead_handle, dead_handle_calls;
    char uuid[96];
    char name[96];
    char bus_id[32];
    Memory memory;
    int32_t errors[CLASS_COUNT];
    uint64_t calls[CLASS_COUNT];
    uint32_t gpu_percent, memory_percent, temperature_c, power_mw, power_limit_mw, fan_percent;
    uint32_t virtualization_mode, addressing_mode;
    uint32_t mig_supported, mig_enabled;
    uint32_t nvlink_version, numa_node;
    uint32_t nvlink_remotes[MAX_LANES]; /* of each lane: 0 is none, 1 a switch, 2 + n the device n */
    uint32_t sm_clock_mhz, memory_clock_mhz, sm_clock_max_mhz, memory_clock_max_mhz;
    uint32_t performance_state, throttle_reasons, compute_mode, pcie_generation, pcie_lanes;
    uint32_t has_pcie_counters; /* 0: not supported, 32: of so many bits, 64 */
    uint32_t ecc_mode, remapped_rows, is_repair_pending, retired_pages, has_retired_pages;
    uint32_t throughput_delay_us; /* how long a call blocks that measures the throughput of PCI Express */
    uint32_t xid_count, xids[MAX_XIDS]; /* the newest ones; number n is at n % MAX_XIDS */
    uint64_t ecc_corrected, ecc_uncorrected;
    double pcie_sent_bytes_per_s, pcie_received_bytes_per_s; /* counters rise with the monotonic clock */
    double nvlink_sent_bytes_per_s, nvlink_received_bytes_per_s;
    Processes processes;
    Instance instances[MAX_INSTANCES];
} Device;

typedef struct {
    uint32_t magic, size;
    int32_t init_error, driver_error;
    uint32_t init_hang, init_waiting, device_count, has_memory_v2;
    uint32_t newest_process_version; /* 3, 2 or 1: newer process functions are not found */
    uint32_t churned_process_versions; /* bit n: version n writes 32-byte entries, as driver 535.43 did */
    char driver_version[80];
    char nvml_version[80];
    int32_t cuda_version;
    uint32_t inits, shutdowns, padding;
    Device devices[MAX_DEVICES];
} State;

typedef struct { Device *device; Instance *instance; Memory *memory; Processes *processes; } Target;
typedef void *Handle;

static State *state;
static char state_path[4096];
static int references;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define EXPORT __attribute__((visibility("default"))) int
#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define ADD(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_ACQ_REL)
#define ENTER(class) \
    Target target; \
    int code = enter(handle, class, &target); \
    if (code != SUCCESS) return code

static double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_us(uint32_t us) {
    struct timespec pause = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&pause, NULL);
}

static void wait_while(uint32_t *flag, uint32_t *waiting) {
    if (!LOAD(*flag)) return;
    ADD(*waiting, 1);
    while (LOAD(*flag)) sleep_us(5000);
    ADD(*waiting, -1);
}

static double phase(double t, double period) {
    double turns = t / period;
    return turns - (double)(int64_t)turns;
}

static uint64_t used_bytes(const Memory *m) {
    double t = monotonic_s() - m->start_s, used = (double)m->base + m->ramp_bytes_per_s * t;
    if (m->sawtooth_period_s > 0) used += m->sawtooth_bytes * phase(t, m->sawtooth_period_s);
    if (m->spike_period_s > 0 && phase(t, m->spike_period_s) * m->spike_period_s < m->spike_length_s)
        used += m->spike_bytes;
    double most = (double)m->total - (double)m->reserved;
    return (uint64_t)(used < 0 ? 0 : used > most ? most : used);
}

/* A mapping is never undone: a call that hangs in it may return much later. */
static int map_state(void) {
    const char *path = getenv("PRETEND_NVML_STATE");
    if (!path || !*path) return DRIVER_NOT_LOADED;
    if (state && strcmp(path, state_path) == 0) return SUCCESS;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return DRIVER_NOT_LOADED;
    struct stat info;
    State *mapped = MAP_FAILED;
    if (fstat(file, &info) == 0 && info.st_size >= (off_t)sizeof(State))
        mapped = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return UNKNOWN;
    if (mapped->magic != MAGIC || mapped->size != sizeof(State)) return UNKNOWN;
    state = mapped;
    snprintf(state_path, sizeof state_path, "%s", path);
    return SUCCESS;
}

EXPORT nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    int code = map_state();
    pthread_mutex_unlock(&lock);
    if (code != SUCCESS) return code;
    wait_while(&state->init_hang, &state->init_waiting);
    if (state->init_error) return state->init_error;
    ADD(state->inits, 1);
    ADD(references, 1);
    return SUCCESS;
}
EXPORT nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlShutdown(void) {
    if (LOAD(references) < 1) return UNINITIALIZED;
    ADD(references, -1);
    ADD(state->shutdowns, 1);
    return SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 18: return "Driver/library version mismatch";
    case 25: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

static int ready(void) {
    if (LOAD(references) < 1) return UNINITIALIZED;
    return state->driver_error;
}

static Handle make_handle(const Device *device, unsigned instance) {
    uint64_t index = (uint64_t)(device - state->devices);
    return (Handle)(uintptr_t)(HANDLE_TAG | ((uint64_t)(device->generation & 0xFFFF) << 16) | index << 8 | instance);
}

static int give_handle(Device *device, unsigned instance, Handle *out) {
    if (!out) return INVALID_ARGUMENT;
    if (LOAD(device->hang) > 1) wait_while(&device->hang, &device->waiting);
    if (LOAD(device->lost)) return GPU_IS_LOST;
    *out = make_handle(device, instance);
    return SUCCESS;
}

/* A handle that was given out before its device was lost stays dead, as on a real driver. */
static int check_alive(Device *device, uint64_t value) {
    int is_dead = LOAD(device->lost) || !device->present || ((value >> 16) & 0xFFFF) != (device->generation & 0xFFFF);
    if (!is_dead) return SUCCESS;
    ADD(device->dead_handle_calls, 1);
    if (device->crash_on_dead_handle) abort();
    return GPU_IS_LOST;
}

static int enter(Handle handle, int class, Target *target) {
    int code = ready();
    if (code != SUCCESS) return code;
    uint64_t value = (uint64_t)(uintptr_t)handle;
    unsigned index = (value >> 8) & 0xFF, instance = value & 0xFF;
    if ((value & ~0xFFFFFFFFull) != HANDLE_TAG || index >= MAX_DEVICES || instance > MAX_INSTANCES)
        return INVALID_ARGUMENT;
    Device *device = &state->devices[index];
    ADD(device->calls[class], 1);
    if (LOAD(device->delay_us)) sleep_us(device->delay_us);
    wait_while(&device->hang, &device->waiting);
    code = check_alive(device, value);
    if (code != SUCCESS) return code;
    if (device->errors[class]) return device->errors[class];
    target->device = device;
    target->instance = instance ? &device->instances[instance - 1] : NULL;
    if (target->instance && !target->instance->present) return NOT_FOUND;
    target->memory = instance ? &target->instance->memory : &device->memory;
    target->processes = instance ? &target->instance->processes : &device->processes;
    return SUCCESS;
}

/* Fields of a whole GPU that a MIG instance does not have, and that a GPU in MIG mode may not tell. */
static int enter_whole(Handle handle, int class, Target *target) {
    int code = enter(handle, class, target);
    return code == SUCCESS && target->instance ? NOT_SUPPORTED : code;
}

static int copy_text(const char *text, char *out, unsigned length) {
    if (!out) return INVALID_ARGUMENT;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

/* --- the driver as a whole --- */

EXPORT nvmlSystemGetDriverVersion(char *out, unsigned length) {
    int code = ready();
    return code ? code : copy_text(state->driver_version, out, length);
}
EXPORT nvmlSystemGetNVMLVersion(char *out, unsigned length) {
    return state ? copy_text(state->nvml_version, out, length) : UNINITIALIZED;
}
EXPORT nvmlSystemGetCudaDriverVersion(int *out) {
    if (!state) return UNINITIALIZED;
    *out = state->cuda_version;
    return SUCCESS;
}
EXPORT nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

EXPORT nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length) {
    int code = ready();
    char text[32];
    snprintf(text, sizeof text, "pid %u", pid);
    return code ? code : copy_text(text, out, length);
}

/* --- finding devices --- */

static Device *nth_present(unsigned index) {
    for (unsigned i = 0; i < state->device_count && i < MAX_DEVICES; i++)
        if (state->devices[i].present && index-- == 0) return &state->devices[i];
    return NULL;
}

EXPORT nvmlDeviceGetCount_v2(unsigned *count) {
    int code = ready();
    if (code) return code;
    for (*count = 0; nth_present(*count); ++*count) {}
    return SUCCESS;
}
EXPORT nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *out) {
    int code = ready();
    if (code) return code;
    Device *device = nth_present(index);
    return device ? give_handle(device, 0, out) : INVALID_ARGUMENT;
}
EXPORT nvmlDeviceGetHandleByIndex(unsigned index, Handle *out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

EXPORT nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out) {
    int code = ready();
    Device *device;
    for (unsigned i = 0; !code && (device = nth_present(i)); i++) {
        if (strcmp(device->uuid, uuid) == 0) return give_handle(device, 0, out);
        for (unsigned k = 0; k < MAX_INSTANCES; k++)
            if (device->instances[k].present && strcmp(device->instances[k].uuid, uuid) == 0)
                return give_handle(device, k + 1, out);
    }
    return code ? code : NOT_FOUND;
}

EXPORT nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Handle *out) {
    int code = ready();
    Device *device;
    for (unsigned i = 0; !code && (device = nth_present(i)); i++)
        if (strcasecmp(device->bus_id, bus_id) == 0) return give_handle(device, 0, out);
    return code ? code : NOT_FOUND;
}
EXPORT nvmlDeviceGetHandleByPciBusId(const char *b, Handle *out) { return nvmlDeviceGetHandleByPciBusId_v2(b, out); }

/* --- identity --- */

EXPORT nvmlDeviceGetUUID(Handle handle, char *out, unsigned length) {
    ENTER(UUID);
    return copy_text(target.instance ? target.instance->uuid : target.device->uuid, out, length);
}

EXPORT nvmlDeviceGetName(Handle handle, char *out, unsigned length) {
    ENTER(NAME);
    return copy_text(target.instance ? target.instance->name : target.device->name, out, length);
}

EXPORT nvmlDeviceGetIndex(Handle handle, unsigned *out) {
    ENTER(OTHER);
    if (target.instance) *out = (unsigned)(target.instance - target.device->instances);
    else for (*out = 0; nth_present(*out) != target.device; ++*out) {}
    return SUCCESS;
}
EXPORT nvmlDeviceGetMinorNumber(Handle handle, unsigned *out) { return nvmlDeviceGetIndex(handle, out); }

typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } PciInfo;

EXPORT nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo *out) {
    ENTER(PCI);
    memset(out, 0, sizeof *out);
    sscanf(target.device->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->legacy, sizeof out->legacy, "%04x:%02x:%02x.0", out->domain, out->bus, out->device);
    memcpy(out->bus_id, target.device->bus_id, sizeof out->bus_id);
    return SUCCESS;
}
EXPORT nvmlDeviceGetPciInfo_v2(Handle handle, PciInfo *out) { return nvmlDeviceGetPciInfo_v3(handle, out); }
EXPORT nvmlDeviceGetPciInfo(Handle handle, PciInfo *out) { return nvmlDeviceGetPciInfo_v3(handle, out); }

/* --- memory --- */

typedef struct { uint64_t total, free, used; } MemoryInfo;
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } MemoryInfoV2;

EXPORT nvmlDeviceGetMemoryInfo(Handle handle, MemoryInfo *out) {
    ENTER(MEMORY);
    Memory *m = target.memory;
    out->total = m->total;
    out->used = used_bytes(m) + m->reserved; /* version 1 counts what the driver reserved as used */
    out->free = out->total - out->used;
    return SUCCESS;
}

EXPORT nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryInfoV2 *out) {
    if (state && !state->has_memory_v2) return FUNCTION_NOT_FOUND;
    ENTER(MEMORY);
    if (out->version != (sizeof *out | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    Memory *m = target.memory;
    out->total = m->total;
    out->reserved = m->reserved;
    out->used = used_bytes(m);
    out->free = m->total - m->reserved - out->used;
    return SUCCESS;
}

EXPORT nvmlDeviceGetBAR1MemoryInfo(Handle handle, MemoryInfo *out) {
    ENTER(BAR1);
    out->total = 128ull << 30;
    out->used = 1ull << 20;
    out->free = out->total - out->used;
    return SUCCESS;
}

/* --- load, heat, power, clocks --- */

EXPORT nvmlDeviceGetUtilizationRates(Handle handle, unsigned out[2]) {
    Target target;
    int code = enter_whole(handle, UTILIZATION, &target);
    if (code) return code;
    if (target.device->mig_enabled) return NOT_SUPPORTED;
    out[0] = target.device->gpu_percent;
    out[1] = target.device->memory_percent;
    return SUCCESS;
}

#define WHOLE_VALUE(function, class, type, expression) \
    EXPORT function(Handle handle, type *out) { \
        Target target; \
        int code = enter_whole(handle, class, &target); \
        if (code == SUCCESS) *out = (type)(expression); \
        return code; \
    }
#define WHOLE_PICKED_VALUE(function, class, type, expression) \
    EXPORT function(Handle handle, int pick, type *out) { \
        Target target; \
        (void)pick; \
        int code = enter_whole(handle, class, &target); \
        if (code == SUCCESS) *out = (type)(expression); \
        return code; \
    }

WHOLE_PICKED_VALUE(nvmlDeviceGetTemperature, TEMPERATURE, unsigned, target.device->temperature_c)
WHOLE_PICKED_VALUE(nvmlDeviceGetTemperatureThreshold, TEMPERATURE, unsigned, 88 + 2 * pick)
WHOLE_VALUE(nvmlDeviceGetPowerUsage, POWER, unsigned, target.device->power_mw)
WHOLE_VALUE(nvmlDeviceGetPowerManagementLimit, POWER_LIMIT, unsigned, target.device->power_limit_mw)
WHOLE_VALUE(nvmlDeviceGetPowerManagementDefaultLimit, POWER_LIMIT, unsigned, target.device->power_limit_mw)
WHOLE_VALUE(nvmlDeviceGetEnforcedPowerLimit, POWER_LIMIT, unsigned, target.device->power_limit_mw)
WHOLE_VALUE(nvmlDeviceGetTotalEnergyConsumption, POWER, uint64_t, monotonic_s() * target.device->power_mw)
WHOLE_VALUE(nvmlDeviceGetFanSpeed, FAN, unsigned, target.device->fan_percent)
WHOLE_PICKED_VALUE(nvmlDeviceGetFanSpeed_v2, FAN, unsigned, target.device->fan_percent)
WHOLE_VALUE(nvmlDeviceGetNumFans, FAN, unsigned, 1)
WHOLE_VALUE(nvmlDeviceGetPerformanceState, PERFORMANCE_STATE, int, target.device->performance_state)
WHOLE_VALUE(nvmlDeviceGetPowerState, PERFORMANCE_STATE, int, target.device->performance_state)
WHOLE_PICKED_VALUE(nvmlDeviceGetClockInfo, CLOCK, unsigned,
                   pick == 2 ? target.device->memory_clock_mhz : target.device->sm_clock_mhz)
WHOLE_PICKED_VALUE(nvmlDeviceGetMaxClockInfo, CLOCK, unsigned,
                   pick == 2 ? target.device->memory_clock_max_mhz : target.device->sm_clock_max_mhz)
WHOLE_VALUE(nvmlDeviceGetComputeMode, COMPUTE_MODE, int, target.device->compute_mode)
WHOLE_VALUE(nvmlDeviceGetCurrentClocksEventReasons, THROTTLING, uint64_t, target.device->throttle_reasons)
WHOLE_VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, THROTTLING, uint64_t, target.device->throttle_reasons)
WHOLE_VALUE(nvmlDeviceGetPersistenceMode, OTHER, int, 1)
WHOLE_VALUE(nvmlDeviceGetDisplayMode, OTHER, int, 0)
WHOLE_VALUE(nvmlDeviceGetDisplayActive, OTHER, int, 0)
WHOLE_VALUE(nvmlDeviceGetBrand, OTHER, int, 14)
WHOLE_VALUE(nvmlDeviceGetArchitecture, OTHER, unsigned, 9)
WHOLE_VALUE(nvmlDeviceGetCurrPcieLinkGeneration, PCI, unsigned, target.device->pcie_generation)
WHOLE_VALUE(nvmlDeviceGetCurrPcieLinkWidth, PCI, unsigned, target.device->pcie_lanes)
WHOLE_VALUE(nvmlDeviceGetMaxPcieLinkGeneration, PCI, unsigned, 5)
WHOLE_VALUE(nvmlDeviceGetMaxPcieLinkWidth, PCI, unsigned, 16)
WHOLE_VALUE(nvmlDeviceGetVirtualizationMode, VIRTUALIZATION, unsigned, target.device->virtualization_mode)

/* In KB/s; the real driver watches its counters for 20 ms. */
EXPORT nvmlDeviceGetPcieThroughput(Handle handle, int pick, unsigned *out) {
    Target target;
    int code = enter_whole(handle, THROUGHPUT, &target);
    if (code) return code;
    if (target.device->throughput_delay_us) sleep_us(target.device->throughput_delay_us);
    *out = (unsigned)((pick == 0 ? target.device->pcie_sent_bytes_per_s : target.device->pcie_received_bytes_per_s) / 1e3);
    return SUCCESS;
}

EXPORT nvmlDeviceGetRemappedRows(Handle handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    Target target;
    int code = enter_whole(handle, REMAPPED, &target);
    if (code) return code;
    *corrected = 0, *uncorrected = target.device->remapped_rows;
    *pending = target.device->is_repair_pending, *failed = 0;
    return SUCCESS;
}

typedef struct { unsigned version, sensor; int temperature; } TemperatureInfo;

EXPORT nvmlDeviceGetTemperatureV(Handle handle, TemperatureInfo *out) {
    Target target;
    int code = enter_whole(handle, TEMPERATURE, &target);
    if (code == SUCCESS) out->temperature = (int)target.device->temperature_c;
    return code;
}

static int give_codec(Handle handle, unsigned *percent, unsigned *period_us) {
    Target target;
    int code = enter_whole(handle, ENCODER, &target);
    if (code == SUCCESS) *percent = 0, *period_us = 167000;
    return code;
}
EXPORT nvmlDeviceGetEncoderUtilization(Handle h, unsigned *percent, unsigned *us) { return give_codec(h, percent, us); }
EXPORT nvmlDeviceGetDecoderUtilization(Handle h, unsigned *percent, unsigned *us) { return give_codec(h, percent, us); }

static int give_pair(Handle handle, int class, unsigned first, unsigned second, unsigned *a, unsigned *b) {
    ENTER(class);
    *a = first, *b = second;
    return SUCCESS;
}
EXPORT nvmlDeviceGetEccMode(Handle handle, unsigned *current, unsigned *pending) {
    Target target;
    int code = enter_whole(handle, ECC, &target);
    if (code == SUCCESS) *current = *pending = target.device->ecc_mode;
    return code;
}
EXPORT nvmlDeviceGetCudaComputeCapability(Handle h, unsigned *a, unsigned *b) {
    return give_pair(h, OTHER, 9, 0, a, b);
}
EXPORT nvmlDeviceGetDriverModel_v2(Handle h, int *a, int *b) { (void)h, (void)a, (void)b; return NOT_SUPPORTED; }
EXPORT nvmlDeviceGetDriverModel(Handle h, int *a, int *b) { return nvmlDeviceGetDriverModel_v2(h, a, b); }

EXPORT nvmlDeviceGetTotalEccErrors(Handle handle, int kind, int counter, uint64_t *out) {
    Target target;
    (void)counter;
    int code = enter_whole(handle, ECC, &target);
    if (code == SUCCESS && !target.device->ecc_mode) code = NOT_SUPPORTED;
    if (code == SUCCESS) *out = kind == 0 ? target.device->ecc_corrected : target.device->ecc_uncorrected;
    return code;
}

EXPORT nvmlDeviceGetAddressingMode(Handle handle, uint32_t out[2]) {
    ENTER(ADDRESSING_MODE);
    out[1] = target.device->addressing_mode;
    return SUCCESS;
}

typedef struct {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    int type, code;
    union { uint32_t u; uint64_t ull; double d; } value;
} FieldValue;

static void give_long(FieldValue *to, uint64_t value) {
    to->type = 3, to->code = SUCCESS, to->value.ull = value; /* unsigned long long */
}

static void give_int(FieldValue *to, uint32_t value) {
    to->type = 1, to->code = SUCCESS, to->value.u = value; /* unsigned int */
}

static void give_bytes(FieldValue *to, double per_s, uint32_t bits) {
    uint64_t value = (uint64_t)(per_s * monotonic_s());
    if (bits == 64) give_long(to, value);
    else if (bits == 32) give_int(to, (uint32_t)value);
}

static void give_field(const Device *device, FieldValue *to) {
    to->code = NOT_SUPPORTED;
    switch (to->field) {
    case 29: if (device->has_retired_pages) give_int(to, 0); break;
    case 30: if (device->has_retired_pages) give_int(to, device->retired_pages); break;
    case 31: if (device->has_retired_pages) give_int(to, device->is_repair_pending); break;
    case 138: if (device->nvlink_version) give_long(to, (uint64_t)(device->nvlink_sent_bytes_per_s * monotonic_s()) >> 10); break;
    case 139: if (device->nvlink_version) give_long(to, (uint64_t)(device->nvlink_received_bytes_per_s * monotonic_s()) >> 10); break;
    case 186: give_int(to, device->power_mw); break; /* instant power draw */
    case 197: give_bytes(to, device->pcie_sent_bytes_per_s, device->has_pcie_counters); break;
    case 198: give_bytes(to, device->pcie_received_bytes_per_s, device->has_pcie_counters); break;
    }
}

EXPORT nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue *values) {
    Target target;
    int code = enter_whole(handle, FIELDS, &target);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        values[i].timestamp_us = (int64_t)(monotonic_s() * 1e6);
        give_field(target.device, &values[i]);
    }
    return SUCCESS;
}

/* --- processes --- */

typedef struct { uint32_t pid; uint64_t used; } ProcessInfoV1;
typedef struct { uint32_t pid; uint64_t used; uint32_t gpu_instance, compute_instance; } ProcessInfoV2;
typedef struct { ProcessInfoV2 info; uint64_t protected_bytes; } ProcessDetail;

static unsigned collect(const Processes *from, const Instance *instance, uint32_t kind, ProcessInfoV2 *out,
                        unsigned n) {
    for (unsigned i = 0; i < from->count && i < MAX_PROCESSES; i++) {
        if (from->entries[i].kind != kind) continue;
        out[n].pid = from->entries[i].pid;
        out[n].used = from->entries[i].used;
        out[n].gpu_instance = instance ? instance->gpu_instance : NOT_APPLICABLE;
        out[n++].compute_instance = instance ? instance->compute_instance : NOT_APPLICABLE;
    }
    return n;
}

/* A GPU in MIG mode lists the processes of all its instances. */
static unsigned collect_all(const Target *target, uint32_t kind, ProcessInfoV2 *out) {
    unsigned n = collect(target->processes, target->instance, kind, out, 0);
    for (unsigned k = 0; !target->instance && target->device->mig_enabled && k < MAX_INSTANCES; k++) {
        const Instance *instance = &target->device->instances[k];
        if (instance->present) n = collect(&instance->processes, instance, kind, out, n);
    }
    return n;
}

static int give_processes(Handle handle, uint32_t kind, unsigned version, unsigned *count, char *out) {
    if (state && version > state->newest_process_version) return FUNCTION_NOT_FOUND;
    ENTER(COMPUTE_PROCESSES + (int)kind);
    ProcessInfoV2 found[MAX_PROCESSES * (MAX_INSTANCES + 1)];
    unsigned n = collect_all(&target, kind, found), room = *count;
    size_t size = version == 1 ? sizeof(ProcessInfoV1) : sizeof(ProcessInfoV2), stride = size;
    if (state->churned_process_versions >> version & 1) stride = sizeof(ProcessDetail);
    *count = n;
    if (n == 0) return SUCCESS;
    if (!out || n * stride > room * size) return INSUFFICIENT_SIZE;
    memset(out, 0, n * stride);
    for (unsigned i = 0; i < n; i++)
        memcpy(out + i * stride, &found[i], stride < sizeof found[i] ? stride : sizeof found[i]);
    return SUCCESS;
}

#define PROCESS_FUNCTIONS(name, kind) \
    EXPORT name(Handle h, unsigned *count, char *out) { return give_processes(h, kind, 1, count, out); } \
    EXPORT name##_v2(Handle h, unsigned *count, char *out) { return give_processes(h, kind, 2, count, out); } \
    EXPORT name##_v3(Handle h, unsigned *count, char *out) { return give_processes(h, kind, 3, count, out); }
PROCESS_FUNCTIONS(nvmlDeviceGetComputeRunningProcesses, 0)
PROCESS_FUNCTIONS(nvmlDeviceGetGraphicsRunningProcesses, 1)
PROCESS_FUNCTIONS(nvmlDeviceGetMPSComputeRunningProcesses, 2)

typedef struct { uint32_t version, mode, count; ProcessDetail *entries; } ProcessDetailList;

EXPORT nvmlDeviceGetRunningProcessDetailList(Handle handle, ProcessDetailList *list) {
    if (list->mode > 2) return INVALID_ARGUMENT;
    ENTER(COMPUTE_PROCESSES + (int)list->mode);
    ProcessInfoV2 found[MAX_PROCESSES * (MAX_INSTANCES + 1)];
    unsigned n = collect_all(&target, list->mode, found), room = list->entries ? list->count : 0;
    list->count = n;
    if (n > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++) list->entries[i] = (ProcessDetail){found[i], 0};
    return SUCCESS;
}

typedef struct { uint32_t pid; uint64_t timestamp_us; uint32_t sm, memory, encoder, decoder; } ProcessSample;

/* Only processes that worked are listed, and nothing on a GPU in MIG mode. */
EXPORT nvmlDeviceGetProcessUtilization(Handle handle, ProcessSample *out, unsigned *count, uint64_t since_us) {
    (void)since_us;
    Target target;
    int code = enter_whole(handle, PROCESS_UTILIZATION, &target);
    if (code) return code;
    if (target.device->mig_enabled) return NOT_SUPPORTED;
    unsigned listed = target.processes->count < MAX_PROCESSES ? target.processes->count : MAX_PROCESSES;
    unsigned room = *count, n = 0;
    for (unsigned i = 0; i < listed; i++) {
        const Process *process = &target.processes->entries[i];
        if (!process->sm_percent && !process->memory_percent) continue;
        if (out && n < room) {
            memset(&out[n], 0, sizeof out[n]);
            out[n].pid = process->pid;
            out[n].timestamp_us = (uint64_t)time(NULL) * 1000000u;
            out[n].sm = process->sm_percent;
            out[n].memory = process->memory_percent;
        }
        n++;
    }
    *count = n;
    if (n == 0) return NOT_FOUND;
    return out && room >= n ? SUCCESS : INSUFFICIENT_SIZE;
}

/* --- MIG --- */

EXPORT nvmlDeviceGetMigMode(Handle handle, unsigned *current, unsigned *pending) {
    ENTER(MIG);
    if (!target.device->mig_supported || target.instance) return NOT_SUPPORTED;
    *current = *pending = target.device->mig_enabled;
    return SUCCESS;
}

EXPORT nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned *out) {
    ENTER(MIG);
    *out = target.device->mig_supported ? MAX_INSTANCES : 0;
    return SUCCESS;
}

EXPORT nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle *out) {
    ENTER(MIG);
    if (!target.device->mig_enabled || index >= MAX_INSTANCES || !target.device->instances[index].present)
        return NOT_FOUND;
    return give_handle(target.device, index + 1, out);
}

EXPORT nvmlDeviceIsMigDeviceHandle(Handle handle, unsigned *out) {
    ENTER(MIG);
    *out = target.instance != NULL;
    return SUCCESS;
}

EXPORT nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle handle, Handle *out) {
    ENTER(MIG);
    return target.instance ? give_handle(target.device, 0, out) : INVALID_ARGUMENT;
}

static int give_instance_id(Handle handle, int is_compute, unsigned *out) {
    ENTER(MIG);
    if (!target.instance) return INVALID_ARGUMENT;
    *out = is_compute ? target.instance->compute_instance : target.instance->gpu_instance;
    return SUCCESS;
}
EXPORT nvmlDeviceGetGpuInstanceId(Handle handle, unsigned *out) { return give_instance_id(handle, 0, out); }
EXPORT nvmlDeviceGetComputeInstanceId(Handle handle, unsigned *out) { return give_instance_id(handle, 1, out); }

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    uint64_t memory_mib;
} Attributes;

EXPORT nvmlDeviceGetAttributes_v2(Handle handle, Attributes *out) {
    ENTER(MIG);
    if (!target.instance) return NOT_SUPPORTED;
    unsigned slices = target.instance->slices;
    *out = (Attributes){16 * slices, slices, 0, 0, 0, 0, slices, slices, target.memory->total >> 20};
    return SUCCESS;
}
EXPORT nvmlDeviceGetAttributes(Handle handle, Attributes *out) { return nvmlDeviceGetAttributes_v2(handle, out); }

/* --- what links devices --- */

/* The remote of a lane; NOT_SUPPORTED where the device has no lanes at all. */
static int find_remote(Handle handle, unsigned lane, uint32_t *remote) {
    Target target;
    int code = enter_whole(handle, NVLINK, &target);
    if (code) return code;
    if (!target.device->nvlink_version) return NOT_SUPPORTED;
    if (lane >= MAX_LANES) return INVALID_ARGUMENT;
    *remote = target.device->nvlink_remotes[lane];
    return SUCCESS;
}

EXPORT nvmlDeviceGetNvLinkState(Handle handle, unsigned lane, unsigned *is_active) {
    uint32_t remote;
    int code = find_remote(handle, lane, &remote);
    if (code == SUCCESS) *is_active = remote != 0;
    return code;
}

EXPORT nvmlDeviceGetNvLinkVersion(Handle handle, unsigned lane, unsigned *version) {
    uint32_t remote;
    int code = find_remote(handle, lane, &remote);
    if (code == SUCCESS) *version = state->devices[((uintptr_t)handle >> 8) & 0xFF].nvlink_version;
    return code;
}

EXPORT nvmlDeviceGetNvLinkRemoteDeviceType(Handle handle, unsigned lane, int *type) {
    uint32_t remote;
    int code = find_remote(handle, lane, &remote);
    if (code == SUCCESS && !remote) return NOT_SUPPORTED;
    if (code == SUCCESS) *type = remote == 1 ? 2 : 0;
    return code;
}

EXPORT nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle handle, unsigned lane, PciInfo *out) {
    uint32_t remote;
    int code = find_remote(handle, lane, &remote);
    if (code) return code;
    memset(out, 0, sizeof *out);
    if (remote < 2) return remote ? SUCCESS : NOT_SUPPORTED;
    memcpy(out->bus_id, state->devices[remote - 2].bus_id, sizeof out->bus_id);
    return SUCCESS;
}

EXPORT nvmlDeviceGetTopologyCommonAncestor(Handle handle, Handle other, int *level) {
    Target first, second;
    int code = enter_whole(handle, TOPOLOGY, &first);
    if (code == SUCCESS) code = enter_whole(other, TOPOLOGY, &second);
    if (code == SUCCESS) *level = first.device->numa_node == second.device->numa_node ? 20 : 50;
    return code;
}

/* One event set a process; what a device reported before it was registered is not delivered. */
typedef struct { Handle device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } EventData;
static struct { int is_registered; Handle handle; uint32_t seen; } registered[MAX_DEVICES];

EXPORT nvmlEventSetCreate(void **set) {
    int code = ready();
    if (code) return code;
    memset(registered, 0, sizeof registered);
    *set = registered;
    return SUCCESS;
}
EXPORT nvmlEventSetFree(void *set) { return set == registered ? SUCCESS : INVALID_ARGUMENT; }
EXPORT nvmlDeviceRegisterEvents(Handle handle, unsigned long long types, void *set) {
    Target target;
    int code = enter_whole(handle, OTHER, &target);
    if (code) return code;
    if (set != registered || !(types & 8)) return INVALID_ARGUMENT;
    long number = target.device - state->devices;
    registered[number].is_registered = 1, registered[number].handle = handle;
    registered[number].seen = LOAD(target.device->xid_count);
    return SUCCESS;
}
EXPORT nvmlEventSetWait_v2(void *set, EventData *out, unsigned timeout_ms) {
    if (set != registered) return INVALID_ARGUMENT;
    for (uint32_t number = 0; number < LOAD(state->device_count); number++) {
        Device *device = &state->devices[number];
        if (!registered[number].is_registered || registered[number].seen == LOAD(device->xid_count)) continue;
        memset(out, 0, sizeof *out);
        out->device = registered[number].handle, out->type = 8;
        out->data = device->xids[registered[number].seen++ % MAX_XIDS];
        return SUCCESS;
    }
    sleep_us(timeout_ms * 1000);
    return TIMEOUT;
}
