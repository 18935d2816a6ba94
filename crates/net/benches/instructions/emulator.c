/* A plugin of QEMU (its TCG plugin interface, version 1): counts the instructions of a program for aarch64 by basic block, and what
 * calls cost, while one of its functions runs. `emulator.rs` starts it and reads what it writes.
 *
 *   start=ADDRESS    of `_start` in the program's file
 *   counted=ADDRESS  of the function, in the file
 *   out=FILE         lines `block ADDRESS INSTRUCTIONS` and `call CALLER CALLEE TIMES INSTRUCTIONS`, addresses as in the file
 *
 * Calls and returns are known by their instructions (Arm ARM: BL, BLR, RET). Only the first thread is looked at.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the interface has, as QEMU's documentation of TCG plugins describes it. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_entry_code(void);

int qemu_plugin_version = 1;

enum ending { GOES_ON, CALLS, RETURNS };

struct block {
    uint64_t at, end, instructions, executed;
    enum ending ending;
    struct block *next;
};

struct frame {
    uint64_t function, back, before;
};

struct edge {
    uint64_t caller, callee, times, cost;
};

enum { FRAMES = 1024, EDGES = 65536 };

static uint64_t start, counted;
static const char *out;
static struct block *blocks;
static const struct block *last;
static struct frame frames[FRAMES];
static size_t depth; /* 0: not within the function */
static struct edge edges[EDGES];
static uint64_t total;

static uint64_t moved(void)
{
    return qemu_plugin_entry_code() - start;
}

static void add_edge(uint64_t caller, uint64_t callee, uint64_t cost)
{
    size_t at = (caller * 31 + callee) / 4 % EDGES;
    for (size_t tries = 0; tries < EDGES; tries++, at = (at + 1) % EDGES) {
        struct edge *edge = &edges[at];
        if (edge->times == 0) {
            edge->caller = caller;
            edge->callee = callee;
        }
        if (edge->caller == caller && edge->callee == callee) {
            edge->times++;
            edge->cost += cost;
            return;
        }
    }
}

static void push(uint64_t function, uint64_t back)
{
    if (depth < FRAMES)
        frames[depth++] = (struct frame){function, back, total};
}

/* Goes back to whoever the instruction belongs to that runs next. */
static void pop(uint64_t to)
{
    size_t frame = depth;
    while (frame > 0 && frames[frame - 1].back != to)
        frame--;
    if (frame == 0)
        return;
    while (depth >= frame) {
        const struct frame *ended = &frames[--depth];
        if (depth > 0)
            add_edge(frames[depth - 1].function, ended->function, total - ended->before);
    }
}

static void executes(unsigned cpu, void *data)
{
    struct block *block = data;
    if (cpu != 0)
        return;
    enum ending ending = last ? last->ending : GOES_ON;
    if (depth > 0 && ending == RETURNS)
        pop(block->at);
    else if (ending == CALLS && (depth > 0 || block->at == counted + moved()))
        push(block->at, last->end);
    last = block;
    if (depth > 0) {
        block->executed++;
        total += block->instructions;
    }
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block);
    if (!block || count == 0)
        abort();
    block->at = qemu_plugin_tb_vaddr(tb);
    block->end = block->at + 4 * count;
    block->instructions = count;
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, count - 1)), sizeof word);
    if ((word & 0xfc000000) == 0x94000000 || (word & 0xfffffc1f) == 0xd63f0000)
        block->ending = CALLS;
    else if ((word & 0xfffffc1f) == 0xd65f0000)
        block->ending = RETURNS;
    block->next = blocks;
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executes, 0, block);
}

static void ends(plugin_id id, void *data)
{
    FILE *file = fopen(out, "w");
    if (!file)
        return;
    for (const struct block *block = blocks; block; block = block->next)
        if (block->executed)
            fprintf(file, "block %" PRIu64 " %" PRIu64 "\n", block->at - moved(), block->executed * block->instructions);
    for (size_t at = 0; at < EDGES; at++)
        if (edges[at].times)
            fprintf(file, "call %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", edges[at].caller - moved(),
                    edges[at].callee - moved(), edges[at].times, edges[at].cost);
    fclose(file);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    for (int n = 0; n < argc; n++) {
        char *value = strchr(argv[n], '=');
        if (!value++)
            return -1;
        if (strncmp(argv[n], "start=", 6) == 0)
            start = strtoull(value, NULL, 10);
        else if (strncmp(argv[n], "counted=", 8) == 0)
            counted = strtoull(value, NULL, 10);
        else if (strncmp(argv[n], "out=", 4) == 0)
            out = strdup(value);
    }
    if (!start || !counted || !out)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ends, NULL);
    return 0;
}
