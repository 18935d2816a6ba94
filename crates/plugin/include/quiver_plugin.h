/*
 * What a plugin in a shared object and the router know of one another.
 *
 * A plugin is a shared object that exports one symbol, `quiver_plugin`: a constant of type `struct quiver_plugin`. The router
 * compares the version and the sizes in it with its own before it runs anything of the plugin. Everything else is reached from there:
 *
 *   quiver_plugin ──► start, stop, configuration     run by the main thread
 *        ├──► operations                             run by the main thread
 *        ├──► nodes ──► run                          run by the threads that forward, each with a state of its own
 *        ├──► features                               where the nodes stand
 *        └──► counters                               in the statistics segment
 *
 * Strings are UTF-8 and end with a zero byte. What the plugin exports stays as it is for as long as the plugin is loaded.
 *
 * Licence: Apache-2.0, as the router's.
 */
#ifndef QUIVER_PLUGIN_H
#define QUIVER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. Plugins of another version are refused. */
#define QUIVER_ABI 1u

/* Packets of a batch at most. */
#define QUIVER_BATCH_MAX 1024

/* Bytes that can be read from the start of each packet, even of a shorter one. */
#define QUIVER_WINDOW 64

/* Slots of `next`: drop the packet for the reason in `reason`; send it to the node's first next node. The others follow. */
#define QUIVER_DROP 0u
#define QUIVER_NEXT(n) ((uint16_t)((n) + 1))

/* Flags in the high byte of `context`. */
#define QUIVER_CHAINED (1u << 25)          /* More buffers follow: `length` is that of the first. */
#define QUIVER_PARTIAL_CHECKSUM (1u << 26) /* The layer 4 checksum is filled in when the packet leaves. */
#define QUIVER_LOCAL (1u << 28)            /* This router made the packet. */
#define QUIVER_LINK_MULTICAST (1u << 29)   /* It came as broadcast or multicast of the link. */

/* No such interface. */
#define QUIVER_NO_INTERFACE UINT32_MAX

/* Levels of the log. */
enum { QUIVER_ERROR = 1, QUIVER_WARNING = 2, QUIVER_NOTICE = 3, QUIVER_DEBUG = 4 };

/* Text that the plugin writes to, by `quiver_host.write`. */
typedef struct quiver_text quiver_text;

/* A vector of packets, for the time of one call of a node. */
typedef struct quiver_batch {
    uint32_t size;           /* Of this structure. */
    uint32_t count;          /* Packets: 1 to QUIVER_BATCH_MAX. */
    uint8_t *const *head;    /* First byte of each packet; on arcs of IPv4 and IPv6 that of the IP header. */
    const uint32_t *length;  /* Bytes from there in the packet's first buffer; they can be read and written. */
    const uint32_t *context; /* Interface that it came in on, and flags: `quiver_rx_interface`. */
    const uint32_t *note;    /* What the nodes before have noted; on output arcs the interface that it leaves by. */
    uint16_t *next;          /* Where each packet goes. Filled already: on, along the arc; else to the first next node. */
    uint16_t *reason;        /* Why a packet is dropped, as place in the node's reasons. Filled with 0. */
    uint64_t now;            /* Time, ns. It only goes forward. */
    uint32_t thread;         /* Number of the thread. */
    uint32_t reserved;
    void *router;            /* The router's own. */
    /* Moves the start of a packet: bytes > 0 takes them off the front, bytes < 0 puts room in front. -1: there are not so many. */
    int32_t (*shift)(struct quiver_batch *batch, uint32_t packet, int32_t bytes);
    /* Counts events by the place of a reason. Drops are counted by the router. */
    void (*count_events)(struct quiver_batch *batch, uint32_t reason, uint64_t events);
    /* Adds to a counter of the plugin. Bytes are for combined counters. */
    void (*add)(struct quiver_batch *batch, uint32_t counter, uint32_t index, uint64_t packets, uint64_t bytes);
} quiver_batch;

/* What the router does for a plugin. Only for the main thread, while it runs a function of the plugin. */
typedef struct quiver_host {
    uint32_t abi;
    uint32_t size;
    void *router; /* The router's own. */
    void (*write)(quiver_text *text, const char *bytes, size_t length);
    void (*log)(const struct quiver_host *host, uint32_t level, const char *text);
    /* Switches a feature on an interface; on the plugin's own nodes only. 0, or -1: no such feature or interface. */
    int32_t (*feature)(const struct quiver_host *host, const char *arc, const char *node, uint32_t interface, int32_t on);
    /* Index of an interface by its name, or QUIVER_NO_INTERFACE. */
    uint32_t (*interface)(const struct quiver_host *host, const char *name);
    /* Writes the name of an interface into `room` bytes, with a zero behind. Its length, or -1: no such interface, or no room. */
    int32_t (*interface_name)(const struct quiver_host *host, uint32_t interface, char *name, size_t room);
    /* Sums of a counter over all threads. */
    void (*sum)(const struct quiver_host *host, uint32_t counter, uint32_t index, uint64_t *packets, uint64_t *bytes);
} quiver_host;

/* A reason to drop, or an event. */
typedef struct quiver_reason {
    const char *text;  /* As `show errors` prints it. */
    const char *about; /* What has happened, in a sentence. */
    uint32_t is_info;  /* 1: nothing is wrong. */
    uint32_t reserved;
} quiver_reason;

/* A node of the graph. */
typedef struct quiver_node {
    const char *name;                /* Unique in the graph: letters, digits and `-`. */
    const char *const *next;         /* Names of the nodes it sends to. */
    const quiver_reason *reasons;
    uint32_t next_count;
    uint32_t reason_count;
    void *(*open)(void *plugin, uint32_t thread);       /* State for a thread, made by main; may be NULL. */
    void (*close)(void *node);                          /* That thread is done with it; may be NULL. */
    void (*run)(void *node, quiver_batch *batch);       /* Handles a vector. */
} quiver_node;

/* A node as a feature of an arc. */
typedef struct quiver_feature {
    const char *arc;                 /* `ip4-unicast`; `show features` lists all. */
    const char *node;
    const char *const *before;       /* Features that come later. */
    const char *const *after;        /* Features that come earlier. */
    uint32_t before_count;
    uint32_t after_count;
} quiver_feature;

/* A counter for each interface, or for whatever the plugin numbers. */
typedef struct quiver_counter {
    const char *name;                /* In the statistics segment: `/my-plugin/seen`. */
    uint32_t is_combined;            /* 1: packets and bytes. */
    uint32_t capacity;               /* Numbers that it has. */
} quiver_counter;

/* Something that can be asked of the plugin, by a command, by JSON and in scripts. */
typedef struct quiver_operation {
    const char *declaration;         /* JSON: docs/plugins.md. */
    /*
     * Runs it. `request` is a JSON object with every field that is declared. `reply` is written as JSON; nothing is `null`.
     * 0, or a negative number as VPP's API has it: then `reply` is the error, one line.
     */
    int32_t (*run)(void *plugin, const char *request, quiver_text *reply);
} quiver_operation;

/* The plugin. */
typedef struct quiver_plugin {
    uint32_t abi;                    /* QUIVER_ABI */
    uint32_t size;                   /* Of this structure, and of the others: QUIVER_SIZES. */
    uint32_t host_size, batch_size, reason_size, node_size, feature_size, counter_size, operation_size;
    uint32_t reserved;
    const char *name;                /* Letters, digits, `-` and `_`. */
    const char *version;
    const char *about;               /* What it does, in a line. */
    const quiver_node *nodes;
    const quiver_feature *features;
    const quiver_counter *counters;
    const quiver_operation *operations;
    uint32_t node_count, feature_count, counter_count, operation_count;
    /*
     * Starts. `options` is a JSON object of strings: what startup.conf says by `option`. Makes the plugin's state, or NULL.
     * 0, or anything else: then `error` says why, one line. Nodes are there when it returns.
     */
    int32_t (*start)(const quiver_host *host, const char *options, void **plugin, quiver_text *error);
    /* Ends, after the last node has been closed. 0: nothing of it runs any more, and it can be unloaded. May be NULL. */
    int32_t (*stop)(void *plugin);
    /* Writes what is configured as a JSON list of {"operation": …, "request": …, "undo": {…}}. May be NULL. */
    void (*configuration)(void *plugin, quiver_text *out);
    /* An interface is deleted: its features are off, its index may become another's. May be NULL. */
    void (*interface_gone)(void *plugin, uint32_t interface);
} quiver_plugin_t;

#define QUIVER_SIZES                                                                                              \
    .size = sizeof(quiver_plugin_t), .host_size = sizeof(quiver_host), .batch_size = sizeof(quiver_batch),        \
    .reason_size = sizeof(quiver_reason), .node_size = sizeof(quiver_node), .feature_size = sizeof(quiver_feature), \
    .counter_size = sizeof(quiver_counter), .operation_size = sizeof(quiver_operation)

#define QUIVER_EXPORT __attribute__((visibility("default")))

/* Interface that a packet came in on. */
static inline uint32_t quiver_rx_interface(const quiver_batch *batch, uint32_t packet) {
    return batch->context[packet] & 0xffffffu;
}

/* Drops a packet for a reason of the node. */
static inline void quiver_drop(quiver_batch *batch, uint32_t packet, uint16_t reason) {
    batch->next[packet] = QUIVER_DROP;
    batch->reason[packet] = reason;
}

/*
 * Fields of a request. The router writes it without blanks, and a quote within a text never stands alone, so a field is found by its
 * name. Other JSON, such as `options`, is read in the same way: the router has written it too.
 */
static inline const char *quiver_field(const char *request, const char *field) {
    size_t length = strlen(field);
    for (const char *at = request; (at = strstr(at, field)) != NULL; at += length) {
        if (at >= request + 2 && at[-1] == '"' && (at[-2] == '{' || at[-2] == ',') && at[length] == '"' && at[length + 1] == ':')
            return at + length + 2;
    }
    return NULL;
}

/* A number; `otherwise` where the field is absent or null. */
static inline uint64_t quiver_number(const char *request, const char *field, uint64_t otherwise) {
    const char *at = quiver_field(request, field);
    return at && *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : otherwise;
}

/* A flag. */
static inline int quiver_flag(const char *request, const char *field) {
    const char *at = quiver_field(request, field);
    return at && *at == 't';
}

/* A text without quotes in it. Its length, or -1: absent, null, or longer than `room`. */
static inline int quiver_string(const char *request, const char *field, char *text, size_t room) {
    const char *at = quiver_field(request, field);
    size_t length = 0;
    if (!at || *at != '"')
        return -1;
    for (at++; *at != '"' && *at != '\\' && *at != 0; at++) {
        if (length + 1 >= room)
            return -1;
        text[length++] = *at;
    }
    text[length] = 0;
    return *at == '"' ? (int)length : -1;
}

#ifdef __cplusplus
}
#endif
#endif
