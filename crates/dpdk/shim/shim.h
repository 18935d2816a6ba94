// The few calls through which Rust drives DPDK. Everything hot in DPDK is inline code of its headers, so it is compiled here,
// one call for a burst. Structures that cross the border have fixed-size fields; both sides assert their sizes.
#ifndef QUIVER_DPDK_SHIM_H
#define QUIVER_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

// Packets that one call of DPDK handles at most.
#define QD_BURST 64
// Segments that one received burst may have in all.
#define QD_SEGMENTS 512
#define QD_NAME 64

// ---- the environment: eal.c

typedef void (*qd_log_fn)(int level, const char *text, size_t len);

int qd_init(int argc, char **argv, qd_log_fn log);
const char *qd_version(void);
int qd_thread_register(void);
void qd_thread_unregister(void);
int qd_attach(const char *devargs);

// ---- memory: pool.c

// Where free buffers come from and go to; called on any thread.
struct qd_pool_ops {
	unsigned (*take)(uint32_t *buffers, unsigned n);
	void (*give)(const uint32_t *buffers, unsigned n);
	unsigned (*available)(void);
};

struct qd_region {
	uint8_t *base;
	uint64_t len;      // bytes of the mapping
	uint64_t page;     // bytes of one of its pages
	uint32_t stride;   // bytes from one buffer to the next
	uint32_t capacity; // buffers
	uint32_t data_end; // bytes from a buffer's start to the end of its data area
	uint32_t headroom; // bytes of a buffer before received data
};

int qd_pool_create(const struct qd_region *region, const struct qd_pool_ops *ops);
int qd_pool_map(uint16_t port);
int qd_pool_create_copying(unsigned count);

extern struct rte_mempool *qd_pool;
extern struct rte_mempool *qd_copying_pool;
// First mbuf of the pool, bytes from a buffer's start to what its mbuf calls the start, the region's base and stride.
extern uint8_t *qd_first;
extern uint8_t *qd_base;
extern uint32_t qd_stride, qd_shift;

// Bytes from one mbuf to the next: a line of the pool's, two of the mbuf's.
#define QD_MBUF_STRIDE (3 * 64)

static inline struct rte_mbuf *qd_mbuf(uint32_t buffer)
{
	return (struct rte_mbuf *)(qd_first + (size_t)buffer * QD_MBUF_STRIDE);
}

static inline uint32_t qd_buffer(const void *mbuf)
{
	return (uint32_t)((size_t)((const uint8_t *)mbuf - qd_first) / QD_MBUF_STRIDE);
}

// ---- bursts: burst.c

struct qd_segment {
	uint32_t buffer, offset, len;
};

struct qd_received {
	struct qd_segment segment[QD_SEGMENTS];
	uint16_t count[QD_BURST]; // segments of each packet
	uint32_t packets;
	uint32_t single; // every packet has one segment
	uint32_t lost;   // packets that could not be handed over
};

struct qd_offload {
	uint8_t l2, l3;  // bytes of the headers
	uint8_t ip6, l4; // whether IPv6; 0 for nothing to do, else the IP protocol
};

struct qd_part {
	const uint8_t *bytes;
	uint64_t len;
};

unsigned qd_rx(uint16_t port, uint16_t queue, unsigned wanted, struct qd_received *out);
unsigned qd_rx_copying(uint16_t port, uint16_t queue, unsigned wanted, void **mbufs);
unsigned qd_parts(const void *mbuf, struct qd_part *parts, unsigned max);
void qd_free(void *mbuf);
unsigned qd_tx(uint16_t port, uint16_t queue, const struct qd_segment *segments, const uint16_t *counts,
	       const struct qd_offload *offloads, unsigned packets);

// ---- ports: port.c

struct qd_port_info {
	char driver[QD_NAME], device[QD_NAME], bus[QD_NAME];
	uint64_t rx_offloads, tx_offloads, rss;
	uint32_t max_frame, min_mtu, max_mtu, speeds, flags;
	int32_t numa;
	uint16_t rx_queues, tx_queues;
	uint16_t rx_min, rx_max, rx_align, tx_min, tx_max, tx_align;
	uint16_t default_rx, default_tx;
};

struct qd_port_config {
	uint64_t rx_offloads, tx_offloads, rss;
	uint32_t mtu;
	uint16_t rx_queues, tx_queues, rx_descriptors, tx_descriptors;
	uint8_t link_events, removal_events, rx_interrupts, copying;
	int32_t numa;
};

struct qd_link {
	uint64_t bits_per_second; // 0: unknown
	uint8_t up, full_duplex, autonegotiated, pad[5];
};

typedef void (*qd_event_fn)(uint16_t port, int event);
typedef void (*qd_counter_fn)(void *to, const char *name, uint64_t value);

#define QD_EVENT_LINK 0
#define QD_EVENT_GONE 1
#define QD_EVENT_RESET 2

int qd_port_by_name(const char *name);
int qd_port_info(uint16_t port, struct qd_port_info *info);
int qd_port_open(uint16_t port, struct qd_port_config *config, const char **step);
int qd_port_start(uint16_t port);
int qd_port_stop(uint16_t port);
int qd_port_close(uint16_t port, int detach);
int qd_port_watch(uint16_t port, qd_event_fn event);
int qd_port_link(uint16_t port, struct qd_link *link);
int qd_port_set_link(uint16_t port, int up);
int qd_port_mac(uint16_t port, uint8_t mac[6]);
int qd_port_set_mac(uint16_t port, const uint8_t mac[6]);
int qd_port_set_promiscuous(uint16_t port, int on);
int qd_port_promiscuous(uint16_t port);
int qd_port_mtu(uint16_t port);
int qd_port_set_mtu(uint16_t port, uint16_t mtu);
int qd_port_counters(uint16_t port, qd_counter_fn counter, void *to);
int qd_port_clear_counters(uint16_t port);
int qd_port_mode(uint16_t port, int tx, char *text, unsigned len);
const char *qd_offload_name(int tx, uint64_t flag);
int qd_queue_watch(uint16_t port, uint16_t queue, int epoll);
int qd_queue_arm(uint16_t port, uint16_t queue, int on);
int qd_queue_drain(int epoll);
int qd_queue_waits(uint16_t port, uint16_t queue);

// ---- times of frames: times.c

int qd_times_find(void);
int qd_times_on(uint16_t port);
int qd_times_now(uint16_t port, uint64_t *ns);
int qd_times_tx(uint16_t port, uint16_t queue, const uint8_t *frame, uint32_t len);
int qd_times_left(uint16_t port, uint64_t *ns);
uint64_t qd_times_came(const void *mbuf);
const void *qd_mbuf_of(uint32_t buffer);

#endif
