/* The part of CUDA's driver library that hold_card.py calls, for the cards of `tests.fake_driver`: which of them a
   process sees goes by CUDA_VISIBLE_DEVICES, a list of names or indices; a card's own name is its index. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int seen[16];
static int count;

static int card_of(const char *word, char names[16][80], int cards) {
    for (int card = 0; card < cards; card++)
        if (!strcmp(names[card], word)) return card;
    return *word >= '0' && *word <= '9' && atoi(word) < cards ? atoi(word) : -1;
}

int cuInit(unsigned flags) {
    char line[256], names[16][80], *visible = getenv("CUDA_VISIBLE_DEVICES");
    int cards = 0;
    FILE *file = fopen(getenv("FAKE_DRIVER"), "r");
    if (!file) return 100;
    while (fgets(line, sizeof line, file)) cards += sscanf(line, "card %79s", names[cards]) == 1;
    fclose(file);
    count = 0;
    if (!visible) while (count < cards) { seen[count] = count; count++; }
    else {
        char *copy = strdup(visible);
        for (char *word = strtok(copy, ","); word; word = strtok(NULL, ",")) {
            int card = card_of(word, names, cards);
            if (card < 0) break; /* as CUDA does: what follows is not seen */
            seen[count++] = card;
        }
        free(copy);
    }
    return count ? 0 : 100;
}

int cuDeviceGetCount(int *found) { *found = count; return 0; }
int cuDeviceGet(int *device, int index) { *device = seen[index]; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, device + 1, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t size) { return 0; }
