/* NVML of `fake_driver`: reports the contents of the file $FAKE_DRIVER. Memory that the driver reserves counts as used, as
in version 1 of the library's call for memory. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char uuid[80], name[80]; unsigned long long mib, used; unsigned count; unsigned pid[64];
                 unsigned long long used_by[64]; char kind[64][8]; } Card;

static Card cards[16];
static unsigned count;

/* An NVML error code. */
static int look(void) {
    char line[256];
    FILE *file = fopen(getenv("FAKE_DRIVER"), "r");
    if (!file) return 9;
    count = 0;
    while (fgets(line, sizeof line, file)) {
        Card *card = count ? &cards[count - 1] : cards;
        if (!strncmp(line, "hang", 4)) sleep(600);
        if (!strncmp(line, "fail", 4)) { fclose(file); return 9; }
        if (!strncmp(line, "card", 4)) {
            card = &cards[count++];
            memset(card, 0, sizeof *card);
            sscanf(line, "card %79s %79s %llu %llu", card->uuid, card->name, &card->mib, &card->used);
        } else {
            unsigned at = card->count++;
            sscanf(line, "process %u %7s %llu", &card->pid[at], card->kind[at], &card->used_by[at]);
            card->used += card->used_by[at];
        }
    }
    fclose(file);
    return 0;
}

int nvmlInit_v2(void) { return look(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *found) { int code = look(); *found = count; return code; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= count) return 2;
    *device = &cards[index];
    return 0;
}

int nvmlDeviceGetUUID(Card *card, char *text, unsigned length) { strncpy(text, card->uuid, length); return 0; }
int nvmlDeviceGetName(Card *card, char *text, unsigned length) { strncpy(text, card->name, length); return 0; }

int nvmlDeviceGetMemoryInfo(Card *card, Memory *memory) {
    memory->total = card->mib << 20;
    memory->used = card->used << 20;
    memory->free = memory->total - memory->used;
    return 0;
}

static int processes(Card *card, unsigned *size, Process *found, char kind) {
    unsigned fits = 0;
    for (unsigned i = 0; i < card->count; i++) {
        if (!strchr(card->kind[i], kind)) continue;
        if (fits >= *size) return 7;
        found[fits].pid = card->pid[i];
        found[fits++].memory = card->used_by[i] << 20;
    }
    *size = fits;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Card *card, unsigned *size, Process *found) {
    return processes(card, size, found, 'C');
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Card *card, unsigned *size, Process *found) {
    return processes(card, size, found, 'G');
}
