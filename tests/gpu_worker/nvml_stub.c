/* A stand-in for the NVIDIA driver's libnvidia-ml.so.1, so that the real nvidia-ml-py code runs on a machine without
 * a GPU. It reads one GPU per line from the file named by STUB_NVML_FILE, else /etc/stub-nvml.txt, anew at each call:
 *
 *   uuid=GPU-… name=NVIDIA_RTX total=MiB free=MiB util=% temp=C power=mW cc=8.9 mig=0 procs=PID:MiB,PID:- draws=PID:MiB
 *
 * A field that is not there answers NVML_ERROR_NOT_SUPPORTED, and one with the value !N answers the error N. fail=N
 * makes every reading of that GPU but its UUID answer N (15: GPU is lost), nohandle=N already the handle. A line with
 * parent=GPU-… is a MIG device of that GPU. "_" in a name is a space. STUB_NVML_INIT=N lets the library not open,
 * STUB_NVML_COUNT=N not count.
 *
 * Compiled with -DLISTER it is a program instead: what `nvidia-smi -L` prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define INVALID 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TOO_SMALL 7
#define NOT_LOADED 9
#define UNKNOWN 999
#define MOST_MIG_DEVICES 7
#define MIB (1024ULL * 1024ULL)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } Process;

/* --- the table --------------------------------------------------------------------------------------------------- */

static FILE *table(void) {
    const char *path = getenv("STUB_NVML_FILE");
    return fopen(path ? path : "/etc/stub-nvml.txt", "r");
}

/* A handle is the line's number, from 1. */
static int line_of(size_t handle, char *line, size_t size) {
    FILE *file = table();
    size_t number = 0;
    int found = 0;
    while (file && !found && fgets(line, (int)size, file)) found = line[0] != '\n' && ++number == handle;
    if (file) fclose(file);
    return found;
}

/* Copies the value of key; 0 when the line has none. */
static int value_of(const char *line, const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    for (const char *at = line; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (!strncmp(at, key, length) && at[length] == '=') {
            size_t end = strcspn(at + length + 1, " \n");
            if (end >= size) end = size - 1;
            memcpy(value, at + length + 1, end);
            value[end] = 0;
            return 1;
        }
    }
    return 0;
}

/* The handle of the index-th GPU (parent NULL), or of the index-th MIG device of a parent; 0 when there is none. */
static size_t handle_of(unsigned int index, const char *parent) {
    char line[1024], theirs[128];
    for (size_t handle = 1; line_of(handle, line, sizeof line); handle++) {
        int is_part = value_of(line, "parent", theirs, sizeof theirs);
        if (parent ? is_part && !strcmp(theirs, parent) : !is_part)
            if (index-- == 0) return handle;
    }
    return 0;
}

static int field(void *handle, const char *key, char *value, size_t size) {
    char line[1024], failure[16];
    if (!line_of((size_t)handle, line, sizeof line)) return INVALID;
    if (strcmp(key, "uuid") && value_of(line, "fail", failure, sizeof failure)) return atoi(failure);
    if (!value_of(line, key, value, size)) return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : OK;
}

static int number(void *handle, const char *key, unsigned int *result) {
    char value[64];
    int code = field(handle, key, value, sizeof value);
    if (code == OK) *result = (unsigned int)strtoul(value, NULL, 10);
    return code;
}

/* --- the library ------------------------------------------------------------------------------------------------- */

int nvmlInit_v2(void) {
    const char *failure = getenv("STUB_NVML_INIT");
    FILE *file = table();
    if (file) fclose(file);
    return failure ? atoi(failure) : file ? OK : NOT_LOADED;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case 4: return "Insufficient Permissions";
        case NOT_LOADED: return "Driver Not Loaded";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        case UNKNOWN: return "Unknown Error";
        default: return "stub error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "550.54.14"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return OK; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    const char *failure = getenv("STUB_NVML_COUNT");
    if (failure) return atoi(failure);
    for (*count = 0; handle_of(*count, NULL); ++*count) {}
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    char line[1024], failure[16];
    size_t found = handle_of(index, NULL);
    if (!found || !line_of(found, line, sizeof line)) return INVALID;
    if (value_of(line, "nohandle", failure, sizeof failure)) return atoi(failure);
    *handle = (void *)found;
    return OK;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size) { return field(handle, "uuid", text, size); }

int nvmlDeviceGetName(void *handle, char *text, unsigned int size) {
    int code = field(handle, "name", text, size);
    if (code == OK) for (char *at = text; *at; at++) if (*at == '_') *at = ' ';
    return code;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    unsigned int total = 0, free_mib = 0;
    int code = number(handle, "total", &total);
    if (code == OK) code = number(handle, "free", &free_mib);
    if (code == OK) *memory = (Memory){total * MIB, free_mib * MIB, (total - free_mib) * MIB};
    return code;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
    rates->memory = 0;
    return number(handle, "util", &rates->gpu);
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) {
    (void)sensor;
    return number(handle, "temp", celsius);
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) { return number(handle, "power", milliwatts); }

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    char value[16];
    int code = field(handle, "cc", value, sizeof value);
    if (code == OK && sscanf(value, "%d.%d", major, minor) != 2) code = NOT_SUPPORTED;
    return code;
}

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending) {
    int code = number(handle, "mig", current);
    *pending = code == OK ? *current : 0;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count) {
    (void)handle;
    *count = MOST_MIG_DEVICES;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **device) {
    char uuid[128];
    int code = field(handle, "uuid", uuid, sizeof uuid);
    if (code == OK && !(*device = (void *)handle_of(index, uuid))) code = NOT_FOUND;
    return code;
}

static int processes(void *handle, const char *key, unsigned int *count, Process *found) {
    char value[512] = "";
    unsigned int room = *count, seen = 0;
    int code = field(handle, key, value, sizeof value);
    *count = 0;
    if (code == NOT_SUPPORTED && !value[0]) return OK; /* the field is not there: nothing runs */
    if (code != OK) return code;
    for (char *item = strtok(value, ","); item; item = strtok(NULL, ","), seen++) {
        char *colon = strchr(item, ':');
        if (seen >= room || !found) continue;
        found[seen].pid = (unsigned int)strtoul(item, NULL, 10);
        found[seen].used = colon[1] == '-' ? ~0ULL : strtoull(colon + 1, NULL, 10) * MIB; /* ~0: not available */
        found[seen].gpu_instance = found[seen].compute_instance = ~0U;
    }
    *count = seen;
    return seen > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *found) {
    return processes(handle, "procs", count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *count, Process *found) {
    return processes(handle, "draws", count, found);
}

/* --- the program ------------------------------------------------------------------------------------------------- */

#ifdef LISTER
int main(void) {
    unsigned int count = 0;
    if (nvmlInit_v2() != OK) {
        puts("Failed to initialize NVML: Unknown Error"); /* what a container says that lost its GPU */
        return UNKNOWN & 0xff;
    }
    nvmlDeviceGetCount_v2(&count);
    for (unsigned int index = 0; index < count; index++) {
        void *handle;
        char name[128] = "", uuid[128] = "";
        if (nvmlDeviceGetHandleByIndex_v2(index, &handle) != OK) continue;
        nvmlDeviceGetName(handle, name, sizeof name);
        nvmlDeviceGetUUID(handle, uuid, sizeof uuid);
        printf("GPU %u: %s (UUID: %s)\n", index, name, uuid);
    }
    return OK;
}
#endif
