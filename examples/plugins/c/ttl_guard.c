/*
 * A plugin in C: drops IPv4 packets whose TTL is below a least one, on the interfaces where it is switched on.
 *
 *   set ttl-guard eth0 min 64
 *   show ttl-guard
 */
#include <quiver_plugin.h>

#include <stdatomic.h>
#include <stdio.h>

#define INTERFACES 4096

/* Least TTL by interface, 0 where it is off. Main writes it, the threads that forward read it. */
static _Atomic uint8_t least[INTERFACES];
static const quiver_host *host;

/* --- the node ------------------------------------------------------------------------------------------------------------------ */

enum { LOW };
static const quiver_reason reasons[] = {
    [LOW] = {"ttl below the least", "The packet's TTL is below that of `set ttl-guard`.", 0, 0},
};
static const char *const next[] = {"ip4-lookup"};

static void run(void *node, quiver_batch *batch) {
    (void)node;
    uint32_t interface = QUIVER_NO_INTERFACE;
    uint8_t min = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        uint32_t rx = quiver_rx_interface(batch, i);
        if (rx != interface) {
            interface = rx;
            min = rx < INTERFACES ? atomic_load_explicit(&least[rx], memory_order_relaxed) : 0;
        }
        if (batch->head[i][8] < min) {
            quiver_drop(batch, i, LOW);
            batch->add(batch, 0, rx, 1, batch->length[i]);
        }
    }
}

static const quiver_node nodes[] = {
    {.name = "ttl-guard", .next = next, .next_count = 1, .reasons = reasons, .reason_count = 1, .run = run},
};
static const quiver_feature features[] = {{.arc = "ip4-unicast", .node = "ttl-guard"}};
static const quiver_counter counters[] = {{.name = "/ttl-guard/drops", .is_combined = 1, .capacity = INTERFACES}};

/* --- commands ------------------------------------------------------------------------------------------------------------------ */

static void say(quiver_text *text, const char *what) { host->write(text, what, strlen(what)); }

static int32_t set(void *plugin, const char *request, quiver_text *reply) {
    char name[64];
    (void)plugin;
    uint32_t interface = QUIVER_NO_INTERFACE;
    if (quiver_string(request, "interface", name, sizeof name) >= 0)
        interface = host->interface(host, name);
    int off = quiver_flag(request, "disable");
    if (interface >= INTERFACES) {
        say(reply, "unknown interface; `show interface' lists all");
        return -2;
    }
    atomic_store(&least[interface], off ? 0 : (uint8_t)quiver_number(request, "min", 2));
    return host->feature(host, "ip4-unicast", "ttl-guard", interface, !off);
}

/* Calls `one` for each interface that is guarded, with commas between what it writes. */
static void each(quiver_text *out, void (*one)(quiver_text *, uint32_t, const char *)) {
    char name[64];
    const char *comma = "[";
    for (uint32_t i = 0; i < INTERFACES; i++) {
        if (least[i] && host->interface_name(host, i, name, sizeof name) >= 0) {
            say(out, comma);
            one(out, i, name);
            comma = ",";
        }
    }
    say(out, *comma == '[' ? "[]" : "]");
}

static void line(quiver_text *out, uint32_t interface, const char *name) {
    char text[256];
    uint64_t packets, bytes;
    host->sum(host, 0, interface, &packets, &bytes);
    snprintf(text, sizeof text, "{\"interface\":\"%s\",\"min\":%u,\"drops\":%llu,\"bytes\":%llu}", name, least[interface],
             (unsigned long long)packets, (unsigned long long)bytes);
    say(out, text);
}

static int32_t show(void *plugin, const char *request, quiver_text *reply) {
    (void)plugin, (void)request;
    each(reply, line);
    return 0;
}

static const quiver_operation operations[] = {
    {"{\"name\":\"ttl_guard_set\",\"access\":\"change\",\"about\":\"Drops packets whose TTL is below a least one\","
     "\"commands\":[\"set ttl-guard\"],\"arguments\":["
     "{\"field\":\"interface\",\"kind\":\"interface\",\"syntax\":\"<if>\",\"about\":\"Interface\",\"required\":true},"
     "{\"field\":\"min\",\"kind\":\"number\",\"syntax\":\"min <n>\",\"about\":\"Least TTL\",\"range\":[1,255],\"default\":2},"
     "{\"field\":\"disable\",\"kind\":\"flag\",\"syntax\":\"disable\",\"about\":\"No longer\"}]}",
     set},
    {"{\"name\":\"ttl_guard_show\",\"access\":\"read\",\"about\":\"Shows where packets are guarded, and what was dropped\","
     "\"commands\":[\"show ttl-guard\"]}",
     show},
};

/* --- what lasts ---------------------------------------------------------------------------------------------------------------- */

static void configured(quiver_text *out, uint32_t interface, const char *name) {
    char text[384];
    snprintf(text, sizeof text,
             "{\"operation\":\"ttl_guard_set\",\"request\":{\"interface\":\"%s\",\"min\":%u},"
             "\"undo\":{\"interface\":\"%s\",\"disable\":true}}",
             name, least[interface], name);
    say(out, text);
}

static void configuration(void *plugin, quiver_text *out) {
    (void)plugin;
    each(out, configured);
}

static void interface_gone(void *plugin, uint32_t interface) {
    (void)plugin;
    if (interface < INTERFACES)
        least[interface] = 0;
}

static int32_t start(const quiver_host *router, const char *options, void **plugin, quiver_text *error) {
    (void)options, (void)plugin, (void)error;
    host = router;
    return 0;
}

QUIVER_EXPORT const struct quiver_plugin quiver_plugin = {
    .abi = QUIVER_ABI,
    QUIVER_SIZES,
    .name = "ttl-guard",
    .version = "1.0",
    .about = "Drops packets whose TTL is too low",
    .nodes = nodes,
    .node_count = 1,
    .features = features,
    .feature_count = 1,
    .counters = counters,
    .counter_count = 1,
    .operations = operations,
    .operation_count = 2,
    .start = start,
    .configuration = configuration,
    .interface_gone = interface_gone,
};
